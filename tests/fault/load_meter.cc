// hotbed-load-meter: load on one bounded table of zeros (sgd, learning rate 1), told as it was over
// time, for the measurements of tests/fault/measure_*.py.
//
//   hotbed-load-meter MODE --coordinator HOST:PORT --table NAME
//
// MODE: `shards`, one push in flight to each shard; `load`, pushes and pulls, closed or open;
// `fill`, a push to every row; `sum`, what the table holds in column 0; `clients`, many that pull
// (many_clients.h).
//
// SIGUSR1, `shards`: a push to each shard leaves at once, or as soon as the one in flight is
// answered.
//
// Runs until --seconds or SIGTERM, then retries what is indeterminate until it is applied, and
// prints one line of JSON. Times are CLOCK_BOOTTIME, ns. Each id pushed adds 1 to column 0 of its
// row: so in the end `sum` is the ids acknowledged by all that pushed. Exit status: 0, or 3 for an
// error.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "hotbed/client.h"
#include "tests/checker/shard_ranges.h"
#include "tests/fault/load_record.h"
#include "tests/fault/many_clients.h"

namespace hotbed {
namespace {

constexpr absl::Duration kResolveDeadline = absl::Seconds(30);
constexpr absl::Duration kDrainMax = absl::Seconds(300);
constexpr int64_t kLateNsMax = 20'000'000;  // behind the schedule of --rate

volatile sig_atomic_t stop_signal = 0;
volatile sig_atomic_t push_now = 0;
void OnSignal(int signal) { (signal == SIGUSR1 ? push_now : stop_signal) = signal; }

struct Options {
  std::string coordinator;
  std::string table;
  double seconds = 10;
  uint64_t ids = 32;       // a push or pull
  int push_flights = 8;    // load: at most
  int pull_flights = 0;    // load: at most
  double rate = 0;         // load: pushes per second, each due at a fixed time; 0: closed loop
  double pace_ms = 200;    // shards: from a push to a shard to the next
  double slow_ms = 50;     // pushes that took longer are listed
  double bucket_ms = 100;  // of what is told over time
  double deadline_ms = 60'000;
  uint64_t seed = 1;
  int clients = 1000;
  double pulls_per_s = 1;
};

// One call in flight. A slot is reused when its call has ended.
struct Slot {
  bool pull = false;
  uint32_t shard = 0;
  int64_t sent_ns = 0;
  std::vector<uint64_t> ids;
  std::vector<float> rows;
  Future<PushResult> push;
};

class Meter {
 public:
  explicit Meter(const Options& options) : o_(options), random_(options.seed) {}

  absl::Status Open() {
    ClientOptions client;
    client.session_name = absl::StrCat("load-meter/", o_.seed);
    client.pushes_in_flight_max = 8192;
    client.pulls_in_flight_max = 8192;
    client.deadline = absl::Milliseconds(o_.deadline_ms);
    HOTBED_ASSIGN_OR_RETURN(client_, Client::Connect("hotbed://" + o_.coordinator, client));
    HOTBED_ASSIGN_OR_RETURN(table_, client_->OpenTable(o_.table));
    HOTBED_ASSIGN_OR_RETURN(shards_, checker::ReadShardRanges(o_.coordinator, o_.table));
    // A session name of a run before has steps behind it, at most one per microsecond.
    step_ = static_cast<uint64_t>(Clock::Real()->WallUs()) % (uint64_t{1} << 43);
    begin_ns_ = Clock::Real()->NowNs();
    record_ = std::make_unique<LoadRecord>(begin_ns_, o_.bucket_ms, o_.slow_ms);
    return absl::OkStatus();
  }

  absl::Status RunShards() {
    next_ns_.assign(shards_.size(), 0);
    std::vector<std::unique_ptr<Slot>> slots;
    for (uint32_t i = 0; i < shards_.size(); ++i) {
      slots.push_back(std::make_unique<Slot>());
      slots[i]->shard = i;
      // Spread over the pace.
      next_ns_[i] = begin_ns_ + static_cast<int64_t>(o_.pace_ms * 1e6 * i / shards_.size());
      idle_.push_back(slots[i].get());
    }
    while (!Over()) {
      RetryUnresolved();
      const int64_t now = Clock::Real()->NowNs();
      if (push_now != 0) {
        push_now = 0;
        next_ns_.assign(shards_.size(), now);
      }
      std::vector<Slot*> later;
      for (Slot* slot : TakeIdle()) {
        if (next_ns_[slot->shard] > now) {
          later.push_back(slot);
          continue;
        }
        next_ns_[slot->shard] = now + static_cast<int64_t>(o_.pace_ms * 1e6);
        DrawFrom(shards_[slot->shard].first, shards_[slot->shard].limit, slot);
        Push(slot);
      }
      {
        absl::MutexLock lock(&mu_);
        idle_.insert(idle_.end(), later.begin(), later.end());
      }
      Clock::Real()->SleepNs(2'000'000);
    }
    return Drain();
  }

  absl::Status RunLoad() {
    std::vector<std::unique_ptr<Slot>> slots;
    for (int i = 0; i < o_.push_flights + o_.pull_flights; ++i) {
      slots.push_back(std::make_unique<Slot>());
      slots[i]->pull = i >= o_.push_flights;
      idle_.push_back(slots[i].get());
    }
    std::vector<Slot*> kept;  // push slots that wait for their time
    int64_t due_ns = begin_ns_;
    while (!Over()) {
      RetryUnresolved();
      for (Slot* slot : TakeIdle()) {
        if (slot->pull) {
          DrawFrom(0, table_->options().rows, slot);
          Pull(slot);
        } else {
          kept.push_back(slot);
        }
      }
      Shed(&due_ns);
      while (!kept.empty() && (o_.rate == 0 || due_ns <= Clock::Real()->NowNs())) {
        Slot* const slot = kept.back();
        kept.pop_back();
        DrawFrom(0, table_->options().rows, slot);
        Push(slot, o_.rate > 0 ? due_ns : 0);
        if (o_.rate > 0) due_ns += IntervalNs();
        Shed(&due_ns);
      }
      WaitForIdle(absl::Milliseconds(o_.rate > 0 ? 1 : 20));
    }
    return Drain();
  }

  // So that every row exists, and takes its bytes.
  absl::Status Fill() {
    std::vector<std::unique_ptr<Slot>> slots;
    for (int i = 0; i < o_.push_flights; ++i) {
      slots.push_back(std::make_unique<Slot>());
      idle_.push_back(slots[i].get());
    }
    uint64_t next = 0;
    while (next < table_->options().rows && stop_signal == 0) {
      for (Slot* slot : TakeIdle()) {
        slot->ids.clear();
        for (uint64_t i = 0; i < o_.ids && next < table_->options().rows; ++i) {
          slot->ids.push_back(next++);
        }
        if (!slot->ids.empty()) Push(slot);
      }
      WaitForIdle(absl::Milliseconds(20));
    }
    return Drain();
  }

  absl::Status Sum() {
    constexpr uint64_t kRows = 65536;
    double sum = 0;
    for (uint64_t first = 0; first < table_->options().rows; first += kRows) {
      std::vector<uint64_t> ids(std::min(kRows, table_->options().rows - first));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + i;
      std::vector<float> rows(ids.size() * table_->dim());
      PullFeature feature;
      feature.table = table_;
      feature.ids = ids;
      feature.rows = rows.data();
      feature.distinct = true;
      HOTBED_RETURN_IF_ERROR(client_->Pull({&feature, 1}).Wait());
      for (size_t i = 0; i < ids.size(); ++i) sum += static_cast<double>(rows[i * table_->dim()]);
    }
    std::printf("{\"sum\": %.0f}\n", sum);
    return absl::OkStatus();
  }

  std::string Json() { return record_->Json(shards_.size()); }

 private:
  bool Over() const {
    return stop_signal != 0 ||
           static_cast<double>(Clock::Real()->NowNs() - begin_ns_) > o_.seconds * 1e9;
  }

  int64_t IntervalNs() const { return static_cast<int64_t>(1e9 / o_.rate); }

  // Pushes that the client had no room for when they were due are left out, and counted.
  void Shed(int64_t* due_ns) {
    if (o_.rate == 0) return;
    const int64_t late_ns = Clock::Real()->NowNs() - *due_ns - kLateNsMax;
    if (late_ns <= 0) return;
    const int64_t count = late_ns / IntervalNs() + 1;
    record_->Shed(static_cast<uint64_t>(count));
    *due_ns += count * IntervalNs();
  }

  std::vector<Slot*> TakeIdle() {
    absl::MutexLock lock(&mu_);
    return std::exchange(idle_, {});
  }

  void WaitForIdle(absl::Duration at_most) {
    absl::MutexLock lock(&mu_);
    const auto some = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !idle_.empty(); };
    mu_.AwaitWithTimeout(absl::Condition(&some), at_most);
  }

  void DrawFrom(uint64_t first, uint64_t limit, Slot* slot) {
    slot->ids.clear();
    for (uint64_t i = 0; i < std::min(o_.ids, limit - first); ++i) {
      slot->ids.push_back(first + random_.Uniform(limit - first));
    }
  }

  // `due_ns`: from when its latency counts; 0: now.
  void Begin(Slot* slot, int64_t due_ns = 0) {
    slot->sent_ns = due_ns != 0 ? due_ns : Clock::Real()->NowNs();
    absl::MutexLock lock(&mu_);
    ++under_way_;
  }

  void Push(Slot* slot, int64_t due_ns = 0) {
    const uint32_t dim = table_->dim();
    slot->rows.assign(slot->ids.size() * dim, 0.0f);
    for (size_t i = 0; i < slot->ids.size(); ++i) slot->rows[i * dim] = -1.0f;
    PushFeature feature;
    feature.table = table_;
    feature.ids = slot->ids;
    feature.gradients = slot->rows.data();
    Begin(slot, due_ns);
    slot->push = client_->Push(++step_, {&feature, 1});
    slot->push.Then([this, slot](const PushResult& result) { Pushed(slot, result); });
  }

  void Pushed(Slot* slot, const PushResult& result) {
    if (result.outcome == PushResult::Outcome::kApplied) {
      record_->Pushed(slot->shard, slot->sent_ns, Clock::Real()->NowNs(), slot->ids.size());
    } else if (result.outcome == PushResult::Outcome::kFailed) {
      record_->Failed(result.status);
    } else {
      record_->Indeterminate(result.status);
    }
    absl::MutexLock lock(&mu_);
    if (result.outcome == PushResult::Outcome::kIndeterminate) {
      unresolved_.push_back({slot, result});
      return;
    }
    idle_.push_back(slot);
    --under_way_;
  }

  // Asks again at once for what became of pushes that nobody told: the client remembers the last
  // ones only. Their slots are taken until it is known.
  void RetryUnresolved() {
    std::vector<std::pair<Slot*, PushResult>> unresolved;
    {
      absl::MutexLock lock(&mu_);
      unresolved.swap(unresolved_);
    }
    for (const auto& [slot, result] : unresolved) {
      slot->push = client_->Retry(result, kResolveDeadline);
      slot->push.Then([this, slot = slot](const PushResult& again) {
        if (again.outcome == PushResult::Outcome::kApplied) record_->Resolved(slot->ids.size());
        if (again.outcome == PushResult::Outcome::kFailed) record_->Failed(again.status);
        absl::MutexLock lock(&mu_);
        if (again.outcome == PushResult::Outcome::kIndeterminate) {
          unresolved_.push_back({slot, again});
          return;
        }
        idle_.push_back(slot);
        --under_way_;
      });
    }
  }

  void Pull(Slot* slot) {
    slot->rows.resize(slot->ids.size() * table_->dim());
    PullFeature feature;
    feature.table = table_;
    feature.ids = slot->ids;
    feature.rows = slot->rows.data();
    Begin(slot);
    client_->Pull({&feature, 1}).Then([this, slot](const absl::Status& status) {
      if (status.ok()) {
        record_->Pulled(slot->sent_ns, Clock::Real()->NowNs());
      } else {
        record_->Failed(status);
      }
      absl::MutexLock lock(&mu_);
      idle_.push_back(slot);
      --under_way_;
    });
  }

  // Waits until no call is in flight.
  absl::Status Drain() {
    const int64_t end_ns = Clock::Real()->NowNs() + absl::ToInt64Nanoseconds(kDrainMax);
    while (Clock::Real()->NowNs() < end_ns) {
      RetryUnresolved();
      absl::MutexLock lock(&mu_);
      const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return under_way_ == 0; };
      if (mu_.AwaitWithTimeout(absl::Condition(&none), absl::Milliseconds(20))) {
        return absl::OkStatus();
      }
    }
    return absl::DeadlineExceededError("calls are still in progress after the end");
  }

  const Options o_;
  Random random_;
  std::unique_ptr<Client> client_;
  const Table* table_ = nullptr;
  std::vector<ShardRange> shards_;
  uint64_t step_ = 0;
  int64_t begin_ns_ = 0;
  std::vector<int64_t> next_ns_;  // by shard
  std::unique_ptr<LoadRecord> record_;

  absl::Mutex mu_;
  std::vector<Slot*> idle_ ABSL_GUARDED_BY(mu_);
  uint64_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::pair<Slot*, PushResult>> unresolved_ ABSL_GUARDED_BY(mu_);
};

int Main(int argc, char** argv) {
  CLI::App app("Load on one table, told over time.");
  app.require_subcommand(1);
  Options o;
  CLI::App* const shards = app.add_subcommand("shards", "one push in flight to each shard");
  CLI::App* const load = app.add_subcommand("load", "pushes and pulls");
  CLI::App* const fill = app.add_subcommand("fill", "every row is pushed once");
  CLI::App* const sum = app.add_subcommand("sum", "the sum of column 0");
  CLI::App* const clients = app.add_subcommand("clients", "many clients that pull");
  clients->add_option("--clients", o.clients);
  clients->add_option("--pulls-per-s", o.pulls_per_s, "of each client")->check(CLI::PositiveNumber);
  for (CLI::App* mode : {shards, load, fill, sum, clients}) {
    mode->add_option("--coordinator", o.coordinator)->required();
    mode->add_option("--table", o.table)->required();
    mode->add_option("--seconds", o.seconds);
    mode->add_option("--ids", o.ids, "ids a push or pull");
    mode->add_option("--push-flights", o.push_flights);
    mode->add_option("--pull-flights", o.pull_flights);
    mode->add_option("--rate", o.rate, "pushes a second; 0: closed loop");
    mode->add_option("--pace-ms", o.pace_ms);
    mode->add_option("--slow-ms", o.slow_ms);
    mode->add_option("--bucket-ms", o.bucket_ms);
    mode->add_option("--deadline-ms", o.deadline_ms);
    mode->add_option("--seed", o.seed, "also the session's name: one meter each");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  signal(SIGTERM, OnSignal);
  signal(SIGUSR1, OnSignal);
  if (clients->parsed()) {
    const ManyClientsOptions many = {.coordinator = o.coordinator,
                                     .table = o.table,
                                     .clients = o.clients,
                                     .seconds = o.seconds,
                                     .pulls_per_s = o.pulls_per_s,
                                     .deadline_ms = o.deadline_ms};
    std::printf("%s\n", RunManyClients(many, &stop_signal).c_str());
    return 0;
  }
  Meter meter(o);
  absl::Status status = meter.Open();
  if (status.ok()) {
    status = sum->parsed()      ? meter.Sum()
             : fill->parsed()   ? meter.Fill()
             : shards->parsed() ? meter.RunShards()
                                : meter.RunLoad();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "hotbed-load-meter: %s\n", status.ToString().c_str());
    return 3;
  }
  if (!sum->parsed()) std::printf("%s\n", meter.Json().c_str());
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
