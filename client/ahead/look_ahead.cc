#include "hotbed/look_ahead.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ahead/announced_rows.h"
#include "client/client_impl.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"

namespace hotbed {
namespace {

// The last step of all trainers that a pull is sure to contain if it begins now.
uint64_t StepsSeen(const TableOptions& table, const TrainerSteps& steps) {
  return IsSynchronous(table) ? steps.committed : steps.ended_by_all;
}

// Whether rows that contain the steps up to `seen` of all trainers may be used in `step`.
bool MayUse(const TableOptions& table, uint64_t seen, uint64_t step) {
  if (table.consistency == Consistency::kAsync) return true;
  return step != 0 && step <= seen + 1 + (IsSynchronous(table) ? 0 : table.staleness);
}

// A pull of some rows again, and where they go.
struct Refresh {
  Future<absl::Status> pull;
  struct Part {
    AnnouncedRows* table;
    std::vector<uint32_t> rows;
    std::vector<uint64_t> ids;
    std::vector<float> values;
  };
  std::deque<Part> parts;  // do not move, because the pull writes to them
};

// The rows of one table that a batch reads.
struct TableRows {
  explicit TableRows(const Table* table) : announced(table) {}

  AnnouncedRows announced;
  bool begun = false;              // the pull of all rows
  uint64_t seen = 0;               // the steps of all trainers that it contains
  std::vector<uint8_t> refreshed;  // by row: it was pulled again, or in Take
};

struct AnnouncedBatch {
  struct Feature {
    TableRows* table;
    size_t first;  // input
    size_t count;
  };
  std::deque<TableRows> tables;  // do not move
  std::vector<Feature> features;
  std::vector<Future<absl::Status>> pulls;  // of all rows of some tables
  std::deque<Refresh> refreshes;            // in the order of their beginning
  uint64_t bytes = 0;                       // of the rows whose pull has begun
};

// An own push that is not known to be acknowledged.
struct OwnPush {
  uint64_t number = 0;
  Future<PushResult> result;
  std::vector<std::pair<const Table*, std::vector<uint64_t>>> changed;  // resolved ids
};

class LookAheadImpl final : public LookAhead {
 public:
  LookAheadImpl(Client* client, const LookAheadOptions& options)
      : client_(client), trainer_(dynamic_cast<const ClientImpl*>(client)), options_(options) {}
  ~LookAheadImpl() override {
    for (AnnouncedBatch& batch : batches_) Settle(&batch).IgnoreError();
  }

  absl::Status Announce(absl::Span<const LookAheadFeature> features) override;
  absl::Status Take(absl::Span<const absl::Span<float>> rows) override;
  Future<PushResult> Push(uint64_t step, absl::Span<const PushFeature> features,
                          const PushOptions& options) override;
  LookAheadStats Stats() const override { return stats_; }

 private:
  static absl::Status Read(absl::Span<const LookAheadFeature> features, AnnouncedBatch* batch);
  static void NoteChanged(const OwnPush& push, AnnouncedBatch* batch);
  // Forgets the pushes of which nothing is in flight any more.
  void ForgetPushes();
  // Also pulls again what they changed of the oldest batch, and begins the pulls that may begin.
  void Notice();
  // Begins the pulls that the steps allow and for which there is room, in the order of the batches.
  // The batches are taken to be those of the next steps, which Take checks.
  void BeginPulls();
  // Begins to pull all rows of the tables of `batch` that are not begun: those that may be pulled
  // now for `step` and for which there is room; or, if `take`, all. Returns the number of rows;
  // `*full`: there was no room for some.
  uint64_t BeginPull(const TrainerSteps& steps, uint64_t step, bool take, AnnouncedBatch* batch,
                     bool* full);
  // Gives up what was pulled too early for the step that has begun, once its pull has ended.
  absl::Status DropOld(const TrainerSteps& steps, AnnouncedBatch* batch);
  TrainerSteps Steps() const {
    return trainer_ != nullptr ? trainer_->trainer_steps() : TrainerSteps{};
  }
  // Begins to pull the rows again that pushes up to `number` changed. Returns their number.
  uint64_t BeginRefresh(uint64_t number, AnnouncedBatch* batch);
  // Waits for the pulls of a batch and puts their rows in place.
  absl::Status Settle(AnnouncedBatch* batch);
  // The last push of which, as of all before it, nothing is in flight.
  uint64_t Acknowledged() const { return pushes_.empty() ? pushed_ : pushes_.front().number - 1; }
  void CountRows(AnnouncedBatch* batch, uint64_t late);

  Client* const client_;
  const ClientImpl* const trainer_;  // the same client, or null
  const LookAheadOptions options_;
  std::deque<AnnouncedBatch> batches_;  // the oldest first; elements do not move
  std::deque<OwnPush> pushes_;
  uint64_t pushed_ = 0;    // the number of the last push
  uint64_t taken_in_ = 0;  // the step that had begun at the last Take
  uint64_t taken_ = 0;     // batches taken in it
  uint64_t bytes_ = 0;     // of batches_, of the rows whose pull has begun
  LookAheadStats stats_;
};

absl::Status LookAheadImpl::Read(absl::Span<const LookAheadFeature> features,
                                 AnnouncedBatch* batch) {
  if (features.empty()) return absl::InvalidArgumentError("a batch of no features was announced");
  for (size_t f = 0; f < features.size(); ++f) {
    const LookAheadFeature& feature = features[f];
    if (feature.table == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("feature ", f, " names no table"));
    }
    if (IsComposed(feature.table->options())) {
      return absl::InvalidArgumentError(
          absl::StrCat("feature ", f, ": table ", feature.table->name(),
                       " is composed, whose rows are not read ahead; pull it"));
    }
    const auto found = std::find_if(
        batch->tables.begin(), batch->tables.end(),
        [&](const TableRows& rows) { return rows.announced.table() == feature.table; });
    TableRows& rows =
        found != batch->tables.end() ? *found : batch->tables.emplace_back(feature.table);
    ResolvedIds resolved;
    const size_t bad = ResolveIds(feature.table->options(), feature.ids, &resolved);
    if (bad != feature.ids.size()) {
      return absl::OutOfRangeError(absl::StrCat("feature ", f, ": id ", feature.ids[bad],
                                                " at position ", bad, " is outside of table ",
                                                feature.table->name(), "; nothing was announced"));
    }
    batch->features.push_back({&rows, rows.announced.AddFeature(resolved), feature.ids.size()});
  }
  for (TableRows& rows : batch->tables) {
    rows.refreshed.resize(rows.announced.ids().size());
  }
  return absl::OkStatus();
}

absl::Status LookAheadImpl::Announce(absl::Span<const LookAheadFeature> features) {
  if (batches_.size() >= options_.batches_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(batches_.size(), " batches are announced and not taken, the limit is ",
                     options_.batches_max, " (batches_max); take one first"));
  }
  AnnouncedBatch read;
  HOTBED_RETURN_IF_ERROR(Read(features, &read));
  AnnouncedBatch& batch = batches_.emplace_back(std::move(read));
  Notice();
  if (batch.pulls.empty() || !batch.pulls[0].ready()) return absl::OkStatus();
  const absl::Status answer = batch.pulls[0].Wait();
  if (answer.ok()) return answer;
  Settle(&batch).IgnoreError();
  bytes_ -= batch.bytes;
  batches_.pop_back();
  return answer;
}

void LookAheadImpl::NoteChanged(const OwnPush& push, AnnouncedBatch* batch) {
  for (TableRows& rows : batch->tables) {
    for (const auto& [table, ids] : push.changed) {
      if (rows.begun && table == rows.announced.table()) {
        rows.announced.NoteChanged(ids, push.number);
      }
    }
  }
}

Future<PushResult> LookAheadImpl::Push(uint64_t step, absl::Span<const PushFeature> features,
                                       const PushOptions& options) {
  OwnPush push;
  push.number = ++pushed_;
  push.result = client_->Push(step, features, options);
  for (const PushFeature& feature : features) {
    if (feature.table == nullptr) continue;
    ResolvedIds resolved;
    const TableOptions& table = feature.table->options();
    if (ResolveIds(table, feature.ids, &resolved) != feature.ids.size()) continue;  // refused
    std::vector<uint64_t> ids;
    for (size_t i = 0; i < resolved.ids.size(); ++i) {
      if (resolved.skip == nullptr || resolved.skip[i] == 0) ids.push_back(resolved.ids[i]);
    }
    push.changed.emplace_back(feature.table, std::move(ids));
  }
  for (AnnouncedBatch& batch : batches_) NoteChanged(push, &batch);
  Future<PushResult> result = push.result;
  pushes_.push_back(std::move(push));
  Notice();
  return result;
}

void LookAheadImpl::ForgetPushes() {
  // A push that failed may have changed rows as well, and is in flight no more.
  while (!pushes_.empty() && pushes_.front().result.ready()) pushes_.pop_front();
}

void LookAheadImpl::Notice() {
  ForgetPushes();
  if (!batches_.empty()) BeginRefresh(Acknowledged(), &batches_.front());
  BeginPulls();
}

void LookAheadImpl::BeginPulls() {
  const TrainerSteps steps = Steps();
  uint64_t before = taken_in_ == steps.begun ? taken_ : 0;  // batches of the step that has begun
  bool full = false;
  for (AnnouncedBatch& batch : batches_) {
    const uint64_t step = steps.begun == 0 ? 0 : steps.begun + before / options_.batches_per_step;
    BeginPull(steps, step, /*take=*/false, &batch, &full);
    if (full) return;
    ++before;
  }
}

uint64_t LookAheadImpl::BeginPull(const TrainerSteps& steps, uint64_t step, bool take,
                                  AnnouncedBatch* batch, bool* full) {
  std::vector<PullFeature> pulls;
  uint64_t count = 0;
  for (TableRows& rows : batch->tables) {
    AnnouncedRows& announced = rows.announced;
    if (rows.begun || announced.ids().empty()) continue;
    const TableOptions& table = announced.table()->options();
    const uint64_t seen = StepsSeen(table, steps);
    if (!take && !MayUse(table, seen, step)) continue;
    if (!take && bytes_ + announced.bytes() > options_.bytes_max) {
      *full = true;
      break;
    }
    rows.seen = seen;
    rows.begun = true;
    batch->bytes += announced.bytes();
    bytes_ += announced.bytes();
    announced.MakeRows();
    count += announced.ids().size();
    if (take) std::fill(rows.refreshed.begin(), rows.refreshed.end(), uint8_t{1});
    PullFeature pull{announced.table(), announced.ids(), announced.rows()};
    pull.distinct = true;
    pulls.push_back(pull);
  }
  if (pulls.empty()) return 0;
  batch->pulls.push_back(client_->Pull(pulls, options_.pull));
  // Whether the pull sees a push that is in flight is unknown.
  for (const OwnPush& push : pushes_) NoteChanged(push, batch);
  return count;
}

uint64_t LookAheadImpl::BeginRefresh(uint64_t number, AnnouncedBatch* batch) {
  Refresh refresh;
  std::vector<PullFeature> pulls;
  uint64_t count = 0;
  for (TableRows& rows : batch->tables) {
    AnnouncedRows& announced = rows.announced;
    std::vector<uint32_t> changed = announced.TakeChanged(number);
    if (changed.empty()) continue;
    count += changed.size();
    Refresh::Part& part = refresh.parts.emplace_back();
    part.table = &announced;
    for (const uint32_t row : changed) {
      part.ids.push_back(announced.ids()[row]);
      rows.refreshed[row] = 1;
    }
    part.rows = std::move(changed);
    part.values.resize(part.ids.size() * uint64_t{announced.table()->dim()});
    PullFeature pull{announced.table(), part.ids, part.values.data()};
    pull.distinct = true;
    pulls.push_back(pull);
  }
  if (pulls.empty()) return 0;
  refresh.pull = client_->Pull(pulls, options_.pull);
  batch->refreshes.push_back(std::move(refresh));
  return count;
}

absl::Status LookAheadImpl::DropOld(const TrainerSteps& steps, AnnouncedBatch* batch) {
  for (TableRows& rows : batch->tables) {
    AnnouncedRows& announced = rows.announced;
    if (!rows.begun || MayUse(announced.table()->options(), rows.seen, steps.begun)) continue;
    HOTBED_RETURN_IF_ERROR(Settle(batch));  // its rows are about to be written again
    announced.TakeChanged(Acknowledged());
    rows.begun = false;
    batch->bytes -= announced.bytes();
    bytes_ -= announced.bytes();
  }
  return absl::OkStatus();
}

absl::Status LookAheadImpl::Settle(AnnouncedBatch* batch) {
  absl::Status status;
  for (const Future<absl::Status>& pull : batch->pulls) status.Update(pull.Wait());
  batch->pulls.clear();
  for (Refresh& refresh : batch->refreshes) {
    status.Update(refresh.pull.Wait());
    for (Refresh::Part& part : refresh.parts) {
      const float* from = part.values.data();
      for (const uint32_t row : part.rows) {
        part.table->SetRow(row, from);
        from += part.table->table()->dim();
      }
    }
  }
  batch->refreshes.clear();
  return status;
}

void LookAheadImpl::CountRows(AnnouncedBatch* batch, uint64_t late) {
  uint64_t rows = 0, refreshed = 0;
  for (const TableRows& table : batch->tables) {
    rows += table.refreshed.size();
    refreshed += static_cast<uint64_t>(
        std::count(table.refreshed.begin(), table.refreshed.end(), uint8_t{1}));
  }
  ++stats_.batches;
  stats_.rows += rows;
  stats_.rows_ready += rows - refreshed;
  stats_.rows_refreshed += refreshed - late;
  stats_.rows_late += late;
}

absl::Status LookAheadImpl::Take(absl::Span<const absl::Span<float>> rows) {
  if (batches_.empty()) {
    return absl::FailedPreconditionError("no batch is announced; call Announce first");
  }
  AnnouncedBatch& batch = batches_.front();
  if (rows.size() != batch.features.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows.size(), " buffers for a batch of ", batch.features.size(), " features"));
  }
  for (size_t f = 0; f < rows.size(); ++f) {
    const AnnouncedBatch::Feature& feature = batch.features[f];
    const uint64_t floats = feature.count * uint64_t{feature.table->announced.table()->dim()};
    if (rows[f].size() == floats) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the buffer of feature ", f, " holds ", rows[f].size(),
                     " floats, the rows of the batch that was announced first have ", floats));
  }
  const uint64_t needed = pushed_ - std::min<uint64_t>(pushed_, options_.own_pushes_behind);
  while (!pushes_.empty() && pushes_.front().number <= needed) {
    pushes_.front().result.Wait();
    pushes_.pop_front();
  }
  ForgetPushes();
  const TrainerSteps steps = Steps();
  taken_ = taken_in_ == steps.begun ? taken_ + 1 : 1;
  taken_in_ = steps.begun;
  absl::Status status = DropOld(steps, &batch);
  uint64_t late = 0;
  if (status.ok()) {
    bool full = false;
    late = BeginPull(steps, steps.begun, /*take=*/true, &batch, &full) +
           BeginRefresh(Acknowledged(), &batch);
  }
  status.Update(Settle(&batch));
  if (status.ok()) {
    for (size_t f = 0; f < rows.size(); ++f) {
      const AnnouncedBatch::Feature& feature = batch.features[f];
      feature.table->announced.CopyTo(feature.first, feature.count, rows[f].data());
    }
    CountRows(&batch, late);
  }
  bytes_ -= batch.bytes;
  batches_.pop_front();
  Notice();
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LookAhead>> LookAhead::Create(Client* client,
                                                             const LookAheadOptions& options) {
  if (options.batches_max < 1 || options.batches_max > 1024) {
    return absl::InvalidArgumentError(absl::StrCat("LookAheadOptions::batches_max is ",
                                                   options.batches_max, "; allowed: 1..1024"));
  }
  if (options.batches_per_step < 1 || options.batches_per_step > 1024) {
    return absl::InvalidArgumentError(absl::StrCat("LookAheadOptions::batches_per_step is ",
                                                   options.batches_per_step, "; allowed: 1..1024"));
  }
  return std::make_unique<LookAheadImpl>(client, options);
}

}  // namespace hotbed
