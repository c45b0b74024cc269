#include "hotbed/look_ahead.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ahead/announced_rows.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

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

// What a batch reads of one table.
struct TableRows {
  explicit TableRows(const Table* table) : announced(table) {}

  AnnouncedRows announced;
  bool begun = false;              // the pull of all rows
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
      : client_(client), options_(options) {}
  ~LookAheadImpl() override {
    for (AnnouncedBatch& batch : batches_) Settle(&batch).IgnoreError();
  }

  absl::Status Announce(absl::Span<const LookAheadFeature> features) override;
  absl::Status Take(absl::Span<float* const> rows) override;
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
  // Begins the pulls for which there is room, in the order of the batches.
  void BeginPulls();
  // Begins to pull all rows of the tables of `batch` that are not begun: those for which there is
  // room, or all of them. Returns the number of rows; `*full`: there was no room for some.
  uint64_t BeginPull(bool all, AnnouncedBatch* batch, bool* full);
  // Begins to pull the rows again that pushes up to `number` changed. Returns their number.
  uint64_t BeginRefresh(uint64_t number, AnnouncedBatch* batch);
  // Waits for the pulls of a batch and puts their rows in place.
  absl::Status Settle(AnnouncedBatch* batch);
  // The last push of which, as of all before it, nothing is in flight.
  uint64_t Acknowledged() const { return pushes_.empty() ? pushed_ : pushes_.front().number - 1; }
  void CountRows(AnnouncedBatch* batch, uint64_t late);

  Client* const client_;
  const LookAheadOptions options_;
  std::deque<AnnouncedBatch> batches_;  // the oldest first; elements do not move
  std::deque<OwnPush> pushes_;
  uint64_t pushed_ = 0;  // the number of the last push
  uint64_t bytes_ = 0;   // of batches_, of the rows whose pull has begun
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
  bool full = false;
  for (AnnouncedBatch& batch : batches_) {
    BeginPull(/*all=*/false, &batch, &full);
    if (full) return;
  }
}

uint64_t LookAheadImpl::BeginPull(bool all, AnnouncedBatch* batch, bool* full) {
  std::vector<PullFeature> pulls;
  uint64_t count = 0;
  for (TableRows& rows : batch->tables) {
    AnnouncedRows& announced = rows.announced;
    if (rows.begun || announced.ids().empty()) continue;
    const bool stepped = announced.table()->options().consistency != Consistency::kAsync;
    if (stepped && !all) continue;
    if (!all && bytes_ + announced.bytes() > options_.bytes_max) {
      *full = true;
      break;
    }
    rows.begun = true;
    batch->bytes += announced.bytes();
    bytes_ += announced.bytes();
    announced.MakeRows();
    count += announced.ids().size();
    if (all) std::fill(rows.refreshed.begin(), rows.refreshed.end(), uint8_t{1});
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

absl::Status LookAheadImpl::Take(absl::Span<float* const> rows) {
  if (batches_.empty()) {
    return absl::FailedPreconditionError("no batch is announced; call Announce first");
  }
  AnnouncedBatch& batch = batches_.front();
  if (rows.size() != batch.features.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows.size(), " buffers for a batch of ", batch.features.size(), " features"));
  }
  const uint64_t needed = pushed_ - std::min<uint64_t>(pushed_, options_.own_pushes_behind);
  while (!pushes_.empty() && pushes_.front().number <= needed) {
    pushes_.front().result.Wait();
    pushes_.pop_front();
  }
  ForgetPushes();
  bool full = false;
  const uint64_t late =
      BeginPull(/*all=*/true, &batch, &full) + BeginRefresh(Acknowledged(), &batch);
  absl::Status status = Settle(&batch);
  if (status.ok()) {
    for (size_t f = 0; f < rows.size(); ++f) {
      const AnnouncedBatch::Feature& feature = batch.features[f];
      feature.table->announced.CopyTo(feature.first, feature.count, rows[f]);
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
  return std::make_unique<LookAheadImpl>(client, options);
}

}  // namespace hotbed
