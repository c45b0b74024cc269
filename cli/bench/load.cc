#include "cli/bench/load.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/huge_buffer.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/zipf.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr int kBatches = 32;              // drawn in advance, used in turn
constexpr size_t kSamplesMax = 1u << 21;  // latencies kept per run and stream

std::vector<uint64_t> DrawBatch(Random& random, const ZipfSampler* zipf, uint64_t rows,
                                uint64_t batch) {
  std::vector<uint64_t> ids;
  if (zipf != nullptr) {
    // Spread ranks over the table; otherwise hot rows would share shards and cache lines.
    for (uint64_t i = 0; i < batch; ++i) ids.push_back(Mix64(zipf->Sample(random)) % rows);
    return ids;
  }
  std::unordered_set<uint64_t> seen;
  while (ids.size() < batch) {
    const uint64_t id = random.Uniform(rows);
    if (seen.insert(id).second) ids.push_back(id);
  }
  return ids;
}

}  // namespace

double LoadResult::Latency(double quantile) const {
  if (latency_s.empty()) return 0;
  const double place = quantile * static_cast<double>(latency_s.size() - 1);
  return latency_s[static_cast<size_t>(std::lround(place))];
}

void LoadResult::AddCounts(const LoadResult& other) {
  calls += other.calls;
  rows += other.rows;
  ids += other.ids;
  bytes += other.bytes;
  bytes_received += other.bytes_received;
  messages += other.messages;
  hedges += other.hedges;
  hedges_of_silent += other.hedges_of_silent;
  hedges_won += other.hedges_won;
}

// One client, the state of its thread, and a ring of calls in flight.
class Load::Stream {
 public:
  explicit Stream(const LoadSpec& spec) : spec_(spec) {}

  absl::Status Open(uint64_t seed) {
    ClientOptions options;
    options.join_requests = !spec_.call_per_table;  // otherwise each table is a message of its own
    options.threads = static_cast<int>(spec_.threads);
    options.pull_type = spec_.wire;
    options.push_type = spec_.wire == RowType::kInt8 ? RowType::kFp32 : spec_.wire;
    if (spec_.grouped) options.trainer_group = "bench-" + spec_.tables[0];
    options.pushes_in_flight_max =
        static_cast<int>(spec_.in_flight * (spec_.call_per_table ? spec_.tables.size() : 1) + 1);
    options.pulls_in_flight_max = options.pushes_in_flight_max;
    HOTBED_ASSIGN_OR_RETURN(client_, Client::Connect("hotbed://" + spec_.coordinator, options));
    Random random(seed);
    uint64_t elements = 0;
    for (uint64_t left = spec_.bag_ids == 0 ? 0 : spec_.batch; left > 0;) {
      bag_lengths_.push_back(static_cast<uint32_t>(std::min<uint64_t>(left, spec_.bag_ids)));
      left -= bag_lengths_.back();
    }
    for (const std::string& name : spec_.tables) {
      HOTBED_ASSIGN_OR_RETURN(const Table* table, client_->OpenTable(name));
      tables_.push_back(table);
      elements += spec_.batch * table->dim();
      const uint64_t rows = table->options().rows;
      const ZipfSampler zipf(spec_.zipf, rows);
      std::vector<std::vector<uint64_t>>& batches = batches_.emplace_back();
      for (int b = 0; b < kBatches; ++b) {
        batches.push_back(DrawBatch(random, spec_.zipf > 0 ? &zipf : nullptr, rows, spec_.batch));
      }
    }
    return MakeBuffers(elements, &random);
  }

  // `interval_ns` between calls, the first at start_ns; 0: at once.
  absl::Status Run(int64_t start_ns, int64_t end_ns, int64_t interval_ns, LoadResult* result) {
    samples_.clear();
    calls_ = 0;
    if (spec_.grouped) {
      HOTBED_ASSIGN_OR_RETURN(const uint64_t next_step, client_->JoinTrainers());
      step_ = next_step - 1;
    }
    const ClientStats before = client_->Stats();
    int64_t due_ns = start_ns;
    absl::Status status;
    for (size_t next = 0; status.ok(); next = (next + 1) % slots_.size()) {
      Slot& slot = *slots_[next];
      status = Finish(&slot);
      if (interval_ns > 0) {
        if (due_ns >= end_ns) break;
        WorkUntil(due_ns, next);
        slot.due_ns = due_ns;
        due_ns += interval_ns;
      } else {
        slot.due_ns = clock_->NowNs();
        if (slot.due_ns >= end_ns) break;
      }
      if (status.ok()) Issue(&slot);
    }
    for (auto& slot : slots_) status.Update(Finish(slot.get()));
    if (spec_.grouped) status.Update(client_->LeaveTrainers());  // the others continue
    const ClientStats after = client_->Stats();
    result->calls += calls_;
    result->ids += calls_ * spec_.batch * tables_.size();
    result->rows += after.rows_pulled - before.rows_pulled + after.rows_pushed - before.rows_pushed;
    result->bytes_received += after.bytes_received - before.bytes_received;
    result->bytes +=
        after.bytes_sent - before.bytes_sent + after.bytes_received - before.bytes_received;
    result->messages += after.messages - before.messages;
    result->hedges += after.hedges - before.hedges;
    result->hedges_of_silent += after.hedges_of_silent - before.hedges_of_silent;
    result->hedges_won += after.hedges_won - before.hedges_won;
    result->latency_s.insert(result->latency_s.end(), samples_.begin(), samples_.end());
    return status;
  }

 private:
  struct Slot {
    HugeBuffer rows;
    float* row(size_t element) { return reinterpret_cast<float*>(rows.data()) + element; }
    std::vector<Future<absl::Status>> pulls;
    std::vector<Future<PushResult>> pushes;
    std::atomic<int> pending{0};
    std::atomic<int64_t> end_ns{0};
    int64_t due_ns = 0;
    bool busy = false;
  };

  // On huge pages, as a trainer should have them: rows are spread over the buffer.
  absl::Status MakeBuffers(uint64_t elements, Random* random) {
    HOTBED_ASSIGN_OR_RETURN(gradients_, HugeBuffer::Allocate(elements * sizeof(float)));
    float* const gradients = reinterpret_cast<float*>(gradients_.data());
    for (uint64_t i = 0; i < elements; ++i) {
      gradients[i] = static_cast<float>(random->Double() - 0.5) * 0.01f;
    }
    const uint64_t bytes = spec_.kind == BenchKind::kPush ? 0 : elements * sizeof(float);
    for (uint32_t i = 0; i < spec_.in_flight; ++i) {
      slots_.push_back(std::make_unique<Slot>());
      HOTBED_ASSIGN_OR_RETURN(slots_.back()->rows, HugeBuffer::Allocate(bytes));
    }
    return absl::OkStatus();
  }

  // Waits for answers, `oldest` first, until the next call is due, as the caller of the roof does.
  void WorkUntil(int64_t due_ns, size_t oldest) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = *slots_[(oldest + i) % slots_.size()];
      const auto left = [&] { return absl::Nanoseconds(due_ns - clock_->NowNs()); };
      for (const auto& pull : slot.pulls) pull.WaitFor(left());
      for (const auto& push : slot.pushes) push.WaitFor(left());
    }
    SleepUntil(due_ns);
  }

  void SleepUntil(int64_t due_ns) const {
    // A sleep ends some 60 us late, so the rest is waited for by spinning.
    const int64_t left = due_ns - clock_->NowNs();
    if (left > 200'000) clock_->SleepNs(left - 150'000);
    while (clock_->NowNs() < due_ns) std::this_thread::yield();
  }

  void Issue(Slot* slot) {
    const int batch = static_cast<int>(batch_number_++ % kBatches);
    slot->busy = true;
    const bool pushes = spec_.kind == BenchKind::kPush ||
                        (spec_.kind == BenchKind::kMixed && batch_number_ % 2 == 0);
    slot->pending = spec_.call_per_table ? static_cast<int>(tables_.size()) : 1;
    if (pushes) {
      IssuePushes(slot, batch);
    } else {
      IssuePulls(slot, batch);
    }
  }

  void NoteEnd(Slot* slot) {
    if (slot->pending.fetch_sub(1) == 1) slot->end_ns.store(clock_->NowNs());
  }

  void IssuePulls(Slot* slot, int batch) {
    pull_features_.clear();
    size_t offset = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      PullFeature& feature = pull_features_.emplace_back();
      feature.table = tables_[t];
      feature.ids = batches_[t][batch];
      feature.rows = slot->row(offset);
      feature.bag_lengths = bag_lengths_;
      if (!bag_lengths_.empty()) feature.pooling = spec_.pooling;
      offset += spec_.batch * tables_[t]->dim();
    }
    const auto call = [&](absl::Span<const PullFeature> features) {
      PullOptions options;
      options.read_from = spec_.read_from;
      options.strict = spec_.strict;
      Future<absl::Status> future = spec_.kind == BenchKind::kLookup
                                        ? client_->Lookup(features, options)
                                        : client_->Pull(features, options);
      future.Then([this, slot](const absl::Status&) { NoteEnd(slot); });
      slot->pulls.push_back(std::move(future));
    };
    if (!spec_.call_per_table) return call(pull_features_);
    for (const PullFeature& feature : pull_features_) call({&feature, 1});
  }

  void IssuePushes(Slot* slot, int batch) {
    push_features_.clear();
    size_t offset = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      push_features_.push_back({tables_[t], batches_[t][batch],
                                reinterpret_cast<const float*>(gradients_.data()) + offset});
      offset += spec_.batch * tables_[t]->dim();
    }
    ++step_;
    const auto call = [&](absl::Span<const PushFeature> features) {
      Future<PushResult> future = client_->Push(step_, features);
      future.Then([this, slot](const PushResult&) { NoteEnd(slot); });
      slot->pushes.push_back(std::move(future));
    };
    if (!spec_.call_per_table) return call(push_features_);
    for (const PushFeature& feature : push_features_) call({&feature, 1});
  }

  absl::Status Finish(Slot* slot) {
    if (!slot->busy) return absl::OkStatus();
    absl::Status status;
    for (auto& pull : slot->pulls) status.Update(pull.Wait());
    for (auto& push : slot->pushes) status.Update(push.Wait().status);
    slot->pulls.clear();
    slot->pushes.clear();
    // The future is ready a moment before its callback has run.
    while (slot->pending.load() > 0) std::this_thread::yield();
    if (spec_.grouped && status.ok()) {
      status = client_->EndStep(step_);
      slot->end_ns.store(clock_->NowNs());
    }
    slot->busy = false;
    ++calls_;
    const float latency = static_cast<float>(slot->end_ns.load() - slot->due_ns) * 1e-9f;
    if (samples_.size() < kSamplesMax) {
      samples_.push_back(latency);
    } else {
      samples_[batch_number_ * 2654435761u % kSamplesMax] = latency;
    }
    return status;
  }

  const LoadSpec spec_;
  const Clock* const clock_ = Clock::Real();
  std::unique_ptr<Client> client_;
  std::vector<const Table*> tables_;
  std::vector<std::vector<std::vector<uint64_t>>> batches_;  // by table, then number
  std::vector<uint32_t> bag_lengths_;                        // per batch
  HugeBuffer gradients_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<PullFeature> pull_features_;
  std::vector<PushFeature> push_features_;
  std::vector<float> samples_;
  uint64_t calls_ = 0;
  uint64_t batch_number_ = 0;
  uint64_t step_ = 0;
};

Load::~Load() = default;

absl::StatusOr<std::unique_ptr<Load>> Load::Open(const LoadSpec& spec) {
  std::unique_ptr<Load> load(new Load);
  for (uint32_t s = 0; s < spec.streams; ++s) {
    load->streams_.push_back(std::make_unique<Stream>(spec));
    HOTBED_RETURN_IF_ERROR(load->streams_.back()->Open(spec.seed * 1000 + s));
  }
  return load;
}

absl::StatusOr<LoadResult> Load::Run(double seconds, double rate) {
  const Clock* clock = Clock::Real();
  const int64_t start_ns = clock->NowNs();
  const int64_t end_ns = start_ns + static_cast<int64_t>(seconds * 1e9);
  const double streams = static_cast<double>(streams_.size());
  const int64_t interval_ns = rate > 0 ? static_cast<int64_t>(1e9 * streams / rate) : 0;
  std::vector<LoadResult> results(streams_.size());
  std::vector<absl::Status> statuses(streams_.size());
  std::vector<std::thread> threads;
  for (size_t s = 0; s < streams_.size(); ++s) {
    // Streams take turns within an interval.
    const int64_t offset_ns =
        interval_ns * static_cast<int64_t>(s) / static_cast<int64_t>(streams_.size());
    threads.emplace_back([&, s, offset_ns] {
      statuses[s] = streams_[s]->Run(start_ns + offset_ns, end_ns, interval_ns, &results[s]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  LoadResult total;
  total.seconds = static_cast<double>(clock->NowNs() - start_ns) * 1e-9;
  for (size_t s = 0; s < streams_.size(); ++s) {
    HOTBED_RETURN_IF_ERROR(statuses[s]);
    total.AddCounts(results[s]);
    total.latency_s.insert(total.latency_s.end(), results[s].latency_s.begin(),
                           results[s].latency_s.end());
  }
  std::sort(total.latency_s.begin(), total.latency_s.end());
  return total;
}

}  // namespace hotbed
