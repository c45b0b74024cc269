// The parts of a shard, without Shard and host, over a fake log, fake rows and a fake network. The
// strand runs everything on the test's thread.
#ifndef HOTBED_TESTS_SHARD_SHARD_PARTS_H_
#define HOTBED_TESTS_SHARD_SHARD_PARTS_H_

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/threads/strand.h"
#include "common/threads/thread_pool.h"
#include "server/protocol/shard_core.h"
#include "server/shard/commit_pipeline.h"
#include "server/shard/in_flight.h"
#include "server/shard/log_replay.h"
#include "server/shard/push_state.h"
#include "server/shard/replica/record_tail.h"
#include "server/shard/replica_comparison.h"
#include "server/shard/replica_exchange.h"
#include "server/shard/request_checks.h"
#include "server/shard/serving_state.h"
#include "server/shard/shard_context.h"
#include "server/shard/shard_gauges.h"
#include "server/shard/snapshot_source.h"
#include "server/shard/step_commits.h"
#include "server/shard/waiting_requests.h"
#include "server/shard_log/shard_log.h"
#include "tests/shard/fake_store.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {

// Appends wait until the test ends them.
class FakeLog final : public ShardLog {
 public:
  absl::Status Replay(const Visitor&) override { return absl::OkStatus(); }
  const std::vector<Damage>& damage() const override { return damage_; }
  absl::StatusOr<LogPosition> End() override { return LogPosition(); }
  void Append(LogAppend* append) override { waiting.push_back(append); }
  void Commit() override { EndAll(absl::OkStatus()); }
  void EndAll(const absl::Status& status) {
    for (const std::deque<LogAppend*> ended = std::exchange(waiting, {});
         LogAppend * append : ended) {
      if (status.ok()) {
        const absl::Span<const uint8_t> bytes = append->encoded;
        lsns.push_back(append->header.lsn);
        records.emplace_back(bytes.begin(), bytes.end());
      }
      append->done(status);
    }
  }
  absl::Status Sync() override { return absl::OkStatus(); }
  void SetLeastNeeded(ShardId, Lsn) override {}
  void SetAside(ShardId, bool) override {}
  void ForgetShard(ShardId) override {}
  void Inherit(ShardId, ShardId) override {}
  Usage GetUsage() const override {
    Usage usage;
    usage.read_only = read_only;
    return usage;
  }
  absl::Status TryResume() override { return absl::OkStatus(); }

  std::deque<LogAppend*> waiting;
  std::vector<Lsn> lsns;
  std::vector<std::vector<uint8_t>> records;  // empty where the log encodes them itself
  bool read_only = false;

 private:
  const std::vector<Damage> damage_{};
};

class FakeOutlet final : public ReplicaOutlet {
 public:
  void Send(ReplicaMessage message) override { sent.push_back(std::move(message)); }
  void StartSnapshot(ShardId, const Member& to) override { snapshots_to.push_back(to); }
  void PromiseWanted(ShardId, Epoch) override {}
  void HasNews() override { ++news; }
  void WaitsUntil(int64_t ns) override { waits_until_ns = ns; }

  std::deque<ReplicaMessage> sent;
  std::vector<Member> snapshots_to;
  int news = 0;
  int64_t waits_until_ns = 0;
};

struct PartsPush : PushWork {
  void Done() override { done = true; }
  std::vector<uint64_t> ids;
  std::vector<float> gradient;
  const uint8_t* row = nullptr;
  bool done = false;
};

class ShardParts {
 public:
  static constexpr uint32_t kDim = 4;

  explicit ShardParts(Member member)
      : self(member),
        pool("parts", 1),
        options(MakeOptions()),
        strand(&pool, &clock, options.strand),
        core(options.core),
        gate(options.range, options.table->hashed),
        push_gate(/*logged=*/true),
        waiting(
            &options, &core, &in_flight, [](PullWork*, PullSegment*) {}, [](PushState*) {}),
        serving(&options, &core, &waiting, &gate, &push_gate),
        context{options, core, strand, in_flight, serving, gauges, gate, push_gate, kDim, false},
        store(&strand, ""),
        steps(&context),
        tail(&core, &budget, &clock),
        comparison(&context),
        replay(&context, &steps),
        exchange(&context, &tail, &comparison, &replay, &pipeline),
        pipeline(&context, {&waiting, &steps, &tail, &replay, &comparison, &exchange}) {
    clock.Advance(1);
    context.store = &store;
    core.Recover(0, ShardMeta());
    replay.Finish();
  }
  ~ShardParts() {
    serving.Close();
    core.Abandon(SegmentCode::kUnavailable);
    pipeline.Drain();
    pipeline.CutFrom(0);
    log.Commit();
    EXPECT_TRUE(in_flight.none()) << "an operation was begun and not ended";
  }

  // As Shard::LearnRecord and PromiseDurable.
  void Learn(const ShardRecord& record) {
    exchange.BeginEpoch(record.epoch);
    core.SetSelf(self);
    core.LearnRecord(record);
    exchange.SetRecord(record);
    pipeline.KeepRecordsIfFollowed();
    pipeline.Drain();
    if (pipeline.promise_wanted() == 0) return;
    core.PromiseDurable(record.epoch);
    pipeline.PromiseKept(record.epoch);
    pipeline.KeepRecordsIfFollowed();
    pipeline.Drain();
  }
  // One push of one row, as Shard::Push; its stages are noted with a clock.
  std::unique_ptr<PartsPush> Push(uint64_t seq, const Clock* stages = nullptr) {
    auto push = std::make_unique<PartsPush>();
    push->stages.Begin(stages);
    push->session = 7;
    push->incarnation = 1;
    push->pending = 1;
    push->ids = {3};
    push->gradient.assign(kDim, 1.0f);
    push->row = reinterpret_cast<const uint8_t*>(push->gradient.data());
    PushSegment& segment = push->segments.emplace_back();
    segment.epoch = core.epoch();
    segment.ids = push->ids.data();
    segment.count = 1;
    segment.gradients = &push->row;
    segment.seq = seq;
    segment.prev_seq = seq - 1;
    segment.open = seq == 1;
    PushState* const state = PushState::Take();
    state->work = push.get();
    state->segment = &segment;
    state->since_ns = push->stages.begun_ns();
    PrepareRows(context, state);
    EXPECT_TRUE(state->refusal.ok()) << state->refusal.detail;
    CorePush core_push;
    core_push.epoch = segment.epoch;
    core_push.session = push->session;
    core_push.incarnation = push->incarnation;
    core_push.seq = segment.seq;
    core_push.prev_seq = segment.prev_seq;
    core_push.open = segment.open;
    core_push.token = reinterpret_cast<PushToken>(state);
    core.Push(core_push);
    pipeline.Drain();
    return push;
  }

  const Member self;
  ManualClock clock;
  ThreadPool pool;
  FakeLog log;
  FakeOutlet outlet;
  ReplicaBudget budget;
  const ShardOptions options;
  InFlight in_flight;
  Strand strand;
  ShardCore core;
  ShardGauges gauges;
  PullGate gate;
  PushGate push_gate;
  WaitingRequests waiting;
  ServingState serving;
  ShardContext context;
  FakeStore store;
  StepCommits steps;
  RecordTail tail;
  ReplicaComparison comparison;
  LogReplay replay;
  ReplicaExchange exchange;
  CommitPipeline pipeline;

 private:
  ShardOptions MakeOptions() {
    ShardOptions made;
    made.table = TestTable(1, "t", 100, kDim, OptimizerKind::kSgd);
    made.id = {1, 0};
    made.range = {0, 100, 0, kDim};
    made.log = &log;
    made.pool = &pool;
    made.clock = &clock;
    made.outlet = &outlet;
    made.replica_budget = &budget;
    budget.tail_bytes_max = 1 << 20;
    return made;
  }
};

// The first of `members` is the primary.
inline ShardRecord PartsRecord(Epoch epoch, const std::vector<Member>& members, bool active) {
  ShardRecord record;
  record.shard = {1, 0};
  record.range = {0, 100, 0, ShardParts::kDim};
  record.epoch = epoch;
  record.revision = 2 * epoch + (active ? 1 : 0);
  record.primary = members[0];
  record.members = members;
  record.active = active;
  return record;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_SHARD_PARTS_H_
