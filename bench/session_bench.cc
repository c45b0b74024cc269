// The cost of exactly-once: bytes per session and shard, and processor time per push.
//
//   session_bench [--seconds=1] [--rounds=5]
//
// Time: the shard's state machine takes pushes of many sessions, in random order, through append,
// commit and apply; and entries without a session (commits of steps of which nothing is staged).
// The difference is compared with the processor time of a whole push of 64 rows x 64, row-wise
// Adagrad, through the shard host, rows and log. Medians of interleaved rounds. Bars: 64 bytes, 3
// %.
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_host.h"
#include "bench/ratio_table.h"
#include "bench/roofs/machine.h"
#include "common/check.h"
#include "common/process_tuning.h"
#include "common/random.h"
#include "server/protocol/session_table.h"
#include "server/protocol/shard_core.h"

namespace hotbed {
namespace {

constexpr uint32_t kBatch = 64;  // rows of a push on one shard: 512 over 8
constexpr uint32_t kDim = 64;
constexpr uint64_t kRows = 125'000;  // of the shard: 32 MB, beyond the caches
constexpr int kBatches = 2048;       // drawn in advance; they cover all rows
constexpr size_t kInFlight = 16;
constexpr int kLoop = 4096;  // between two looks at the clock
constexpr Member kSelf{1, 1};

double ProcessorNs(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

ShardRecord Record(ShardId shard, bool active) {
  ShardRecord record;
  record.shard = shard;
  record.range = {0, kRows, 0, kDim};
  record.epoch = 1;
  record.revision = active ? 2 : 1;
  record.primary = kSelf;
  record.members = {kSelf};
  record.active = active;
  return record;
}

// Only the state machine; its requests are fulfilled at once.
class Core {
 public:
  explicit Core(uint64_t sessions)
      : core_(ShardCoreOptions()), last_seq_(sessions + 1), others_(sessions + 1) {
    core_.SetSelf(kSelf);
    core_.LearnRecord(Record({1, 0}, false));
    core_.PromiseDurable(1);
    core_.LearnRecord(Record({1, 0}, true));
    core_.ready()->Clear();
    for (SessionId id = 1; id <= sessions; ++id) Push(id, /*open=*/true);
  }

  void PushAtRandom() { Push(1 + random_.Uniform(last_seq_.size() - 1), /*open=*/false); }
  // The same entry through the same steps, without a session. The client's work is included, too.
  void WithoutSession() {
    others_[1 + random_.Uniform(others_.size() - 1)] += uint64_t{1} << kStepShift;
    CoreCommit commit;
    commit.epoch = 1;
    commit.step = ++step_;
    commit.token = 1;
    core_.Commit(commit);
    Finish();
  }

 private:
  void Push(SessionId id, bool open) {
    CorePush push;
    push.epoch = 1;
    push.session = id;
    push.incarnation = 1;
    push.prev_seq = last_seq_[id];
    push.seq = last_seq_[id] += uint64_t{1} << kStepShift;
    push.open = open;
    push.token = 1;
    // As in a shard's Tick: sessions are active at different times.
    if (++pushes_ % 1024 == 0) core_.SetNow(pushes_);
    core_.Push(push);
    Finish();
  }
  void Finish() {
    CoreReady& ready = *core_.ready();
    HOTBED_CHECK(ready.appends.size() == 1) << "refused";
    core_.Appended(ready.appends[0].lsn, ready.appends[0].ticket);
    core_.Applied(ready.applies[0].lsn);
    HOTBED_CHECK(ready.replies[0].code == SegmentCode::kOk);
    ready.Clear();
  }

  ShardCore core_;
  Random random_{1};
  std::vector<uint64_t> last_seq_;  // by session: the clients' side
  std::vector<uint64_t> others_;    // as last_seq_, for entries without sessions
  int64_t pushes_ = 0;
  uint64_t step_ = 0;
};

// A whole push: the shard host with one shard, no network.
class Host {
 public:
  explicit Host(Durability durability) {
    TableSpec table;
    table.id = 1;
    table.name = "bench";
    table.rows = kRows;
    table.dim = kDim;
    table.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
    table.durability = durability;
    host_.Serve({table}, 1);
    shard_ = host_.get()->Find({1, 0});
    Random random(2);
    for (std::vector<uint64_t>& ids : batches_) {
      for (uint32_t i = 0; i < kBatch; ++i) {  // one per stretch of rows: unique
        ids.push_back(i * (kRows / kBatch) + random.Uniform(kRows / kBatch));
      }
    }
  }
  ~Host() {
    for (const auto& push : under_way_) push->Wait();
  }

  void Push() {
    if (under_way_.size() >= kInFlight) {
      under_way_.front()->Wait();
      under_way_.pop_front();
    }
    auto& work = *under_way_.emplace_back(std::make_unique<bench::BenchPush>());
    PushSegment& segment = work.segments.emplace_back();
    segment.shard_id = {1, 0};
    segment.shard = shard_.get();
    segment.epoch = 1;
    segment.ids = batches_[step_ % kBatches].data();
    segment.count = kBatch;
    segment.gradients = gradients_.data();
    segment.prev_seq = step_ << kStepShift;
    segment.seq = ++step_ << kStepShift;
    segment.open = step_ == 1;
    host_.get()->Push(&work);
  }

 private:
  bench::BenchHost host_;
  std::shared_ptr<Shard> shard_;
  std::vector<uint64_t> batches_[kBatches];
  const std::vector<float> gradient_ = std::vector<float>(kDim, 0.001f);
  const std::vector<const uint8_t*> gradients_ =
      std::vector<const uint8_t*>(kBatch, reinterpret_cast<const uint8_t*>(gradient_.data()));
  std::deque<std::unique_ptr<bench::BenchPush>> under_way_;
  uint64_t step_ = 0;
};

// Processor nanoseconds per call, by `clock`: of the process; or of the thread, for work that no
// other thread does, so that concurrent write-back does not count.
template <typename Call>
double NsOf(double seconds, int loop, Call call, clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {
  const double begin = ProcessorNs(clock);
  uint64_t calls = 0;
  double ns = 0;
  do {
    for (int i = 0; i < loop; ++i) call();
    calls += loop;
    ns = ProcessorNs(clock) - begin;
  } while (ns < seconds * 1e9);
  return ns / static_cast<double>(calls);
}

void PrintBytes() {
  SessionTable table;
  double most = 0;
  double sum = 0;
  for (SessionId id = 1; id <= ShardCoreOptions().sessions_max; ++id) {
    table.Set(id, {1, 1, 1});
    const double bytes =
        static_cast<double>(table.allocated_bytes()) / static_cast<double>(table.size());
    most = std::max(most, bytes);
    sum += bytes;
  }
  std::printf(
      "bytes a session and shard, 1 to %zu sessions: %.1f at most, %.1f in the mean (bar 64)\n",
      table.size(), most, sum / static_cast<double>(table.size()));
}

void PrintCost(double seconds, int rounds) {
  Host checkpoint(Durability::kCheckpoint);
  Host log(Durability::kLog);
  const auto push_to = [](Host* host) { return [host] { host->Push(); }; };
  NsOf(seconds, 256, push_to(&checkpoint));  // so that rows exist
  NsOf(seconds, 256, push_to(&log));
  for (const uint64_t sessions : {1, 1'000, 50'000}) {
    Core core(sessions);
    std::vector<double> with, without, whole, whole_log;
    for (int r = 0; r < rounds; ++r) {
      with.push_back(NsOf(
          seconds / 4, kLoop, [&] { core.PushAtRandom(); }, CLOCK_THREAD_CPUTIME_ID));
      without.push_back(NsOf(
          seconds / 4, kLoop, [&] { core.WithoutSession(); }, CLOCK_THREAD_CPUTIME_ID));
      whole.push_back(NsOf(seconds, 256, push_to(&checkpoint)));
      whole_log.push_back(NsOf(seconds, 256, push_to(&log)));
    }
    const double cost = bench::Median(with) - bench::Median(without);
    std::printf(
        "%6lu sessions: %.0f ns a push through the state machine, %.0f without a session: %.0f ns, "
        "%.2f %% of a push of %u rows (%.1f us of processor time), %.2f %% of one of class log "
        "(%.1f us); bar 3 %%\n",
        sessions, bench::Median(with), bench::Median(without), cost,
        100 * cost / bench::Median(whole), kBatch, bench::Median(whole) / 1e3,
        100 * cost / bench::Median(whole_log), bench::Median(whole_log) / 1e3);
  }
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  double seconds = 1;
  int rounds = 5;
  CLI::App app;
  app.add_option("--seconds", seconds);
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const hotbed::bench::MachineNote note;
  hotbed::PrintBytes();
  hotbed::PrintCost(seconds, rounds);
  return 0;
}
