// hotbed-load-meter: load on one bounded table of zeros (sgd, learning rate 1), told as it was over
// time, for the measurements of tests/fault/measure_*.py.
//
//   hotbed-load-meter shards --coordinator HOST:PORT --table NAME   one push in flight to each
//   shard hotbed-load-meter load   --coordinator HOST:PORT --table NAME   pushes and pulls, closed
//   or open hotbed-load-meter sum    --coordinator HOST:PORT --table NAME   what the table holds in
//   column 0
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
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/grpc_control_plane.h"
#include "common/clock.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "hotbed/client.h"

namespace hotbed {
namespace {

constexpr absl::Duration kControlTimeout = absl::Seconds(30);
constexpr absl::Duration kResolveDeadline = absl::Seconds(30);
constexpr int kResolvesMax = 10;

volatile sig_atomic_t stop_signal = 0;
void OnSignal(int signal) { stop_signal = signal; }

struct Options {
  std::string coordinator;
  std::string table;
  double seconds = 10;
  uint64_t ids = 32;       // a push or pull
  int push_flights = 8;    // load: at most
  int pull_flights = 0;    // load: at most
  double rate = 0;         // load: pushes a second, each due at a fixed time; 0: closed loop
  double pace_ms = 200;    // shards: from a push to a shard to the next
  double slow_ms = 50;     // pushes that took longer are listed
  double bucket_ms = 100;  // of what is told over time
  double deadline_ms = 60'000;
  uint64_t seed = 1;
};

// One call under way. A slot is used again when its call has ended.
struct Slot {
  bool pull = false;
  uint32_t shard = 0;
  int64_t sent_ns = 0;
  std::vector<uint64_t> ids;
  std::vector<float> rows;
  Future<PushResult> push;
};

struct Bucket {
  uint64_t pushes = 0;
  uint64_t pulls = 0;
  int64_t push_max_ns = 0;
  int64_t pull_max_ns = 0;
};

struct Slow {
  uint32_t shard;
  int64_t sent_ns;
  int64_t acked_ns;
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
    HOTBED_ASSIGN_OR_RETURN(const MapUpdate map,
                            NewGrpcControlPlane(o_.coordinator)->GetMap(0, kControlTimeout));
    for (const ShardRecord& record : map.shards) {
      if (record.shard.table == table_->options().id) shards_.push_back(record);
    }
    std::sort(shards_.begin(), shards_.end(), [](const ShardRecord& a, const ShardRecord& b) {
      return a.shard.index < b.shard.index;
    });
    // A session name of a run before has steps behind it.
    step_ = static_cast<uint64_t>(Clock::Real()->WallUs() / 1000) % (uint64_t{1} << 40);
    begin_ns_ = Clock::Real()->NowNs();
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
      const int64_t now = Clock::Real()->NowNs();
      std::vector<Slot*> later;
      for (Slot* slot : TakeIdle()) {
        if (next_ns_[slot->shard] > now) {
          later.push_back(slot);
          continue;
        }
        next_ns_[slot->shard] = now + static_cast<int64_t>(o_.pace_ms * 1e6);
        DrawFrom(shards_[slot->shard].range.first, shards_[slot->shard].range.limit, slot);
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
      for (Slot* slot : TakeIdle()) {
        if (slot->pull) {
          DrawFrom(0, table_->options().rows, slot);
          Pull(slot);
        } else {
          kept.push_back(slot);
        }
      }
      while (!kept.empty() && (o_.rate == 0 || due_ns <= Clock::Real()->NowNs())) {
        Slot* const slot = kept.back();
        kept.pop_back();
        DrawFrom(0, table_->options().rows, slot);
        Push(slot, o_.rate > 0 ? due_ns : 0);
        if (o_.rate > 0) due_ns += static_cast<int64_t>(1e9 / o_.rate);
      }
      if (kept.empty() && o_.rate > 0 && due_ns < Clock::Real()->NowNs()) ++overdue_turns_;
      absl::MutexLock lock(&mu_);
      const auto some = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !idle_.empty(); };
      mu_.AwaitWithTimeout(absl::Condition(&some), absl::Milliseconds(o_.rate > 0 ? 1 : 20));
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

  void Print() {
    absl::MutexLock lock(&mu_);
    std::sort(push_ns_.begin(), push_ns_.end());
    std::sort(pull_ns_.begin(), pull_ns_.end());
    const auto over_buckets = [this](auto value) {
      return absl::StrJoin(buckets_, ",", [value](std::string* out, const Bucket& b) {
        absl::StrAppend(out, value(b));
      });
    };
    const auto quantile_us = [](const std::vector<int64_t>& sorted, double q) {
      if (sorted.empty()) return int64_t{0};
      return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))] / 1000;
    };
    std::printf(
        "{\"begin_ns\": %s, \"bucket_ms\": %s, \"shards\": %s, \"pushes\": %s, \"pulls\": %s, "
        "\"ids_acknowledged\": %s, \"errors\": %s, \"indeterminate\": %s, \"overdue_turns\": %s, ",
        absl::StrCat(begin_ns_).c_str(), absl::StrCat(o_.bucket_ms).c_str(),
        absl::StrCat(shards_.size()).c_str(), absl::StrCat(push_ns_.size()).c_str(),
        absl::StrCat(pull_ns_.size()).c_str(), absl::StrCat(ids_acknowledged_).c_str(),
        absl::StrCat(errors_).c_str(), absl::StrCat(indeterminate_).c_str(),
        absl::StrCat(overdue_turns_).c_str());
    for (const auto& [name, sorted] :
         {std::pair<const char*, std::vector<int64_t>*>{"push", &push_ns_}, {"pull", &pull_ns_}}) {
      for (const double q : {0.5, 0.99, 0.999, 1.0}) {
        std::printf("\"%s_us_p%g\": %s, ", name, 100 * q,
                    absl::StrCat(quantile_us(*sorted, q)).c_str());
      }
    }
    std::printf("\"pushes_over_time\": [%s], \"pulls_over_time\": [%s], ",
                over_buckets([](const Bucket& b) { return b.pushes; }).c_str(),
                over_buckets([](const Bucket& b) { return b.pulls; }).c_str());
    std::printf("\"push_max_us_over_time\": [%s], \"pull_max_us_over_time\": [%s], ",
                over_buckets([](const Bucket& b) { return b.push_max_ns / 1000; }).c_str(),
                over_buckets([](const Bucket& b) { return b.pull_max_ns / 1000; }).c_str());
    std::printf("\"first_error\": \"%s\", \"slow\": [%s]}\n", first_error_.c_str(),
                absl::StrJoin(slow_, ",", [](std::string* out, const Slow& s) {
                  absl::StrAppend(out, "[", s.shard, ",", s.sent_ns, ",", s.acked_ns, "]");
                }).c_str());
  }

 private:
  bool Over() const {
    return stop_signal != 0 ||
           static_cast<double>(Clock::Real()->NowNs() - begin_ns_) > o_.seconds * 1e9;
  }

  std::vector<Slot*> TakeIdle() {
    absl::MutexLock lock(&mu_);
    return std::exchange(idle_, {});
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
    const int64_t now = Clock::Real()->NowNs();
    absl::MutexLock lock(&mu_);
    if (result.outcome == PushResult::Outcome::kIndeterminate) {
      ++indeterminate_;
      NoteError(result.status);
      unresolved_.push_back({result, slot->ids.size()});
    } else if (result.outcome == PushResult::Outcome::kFailed) {
      ++errors_;
      NoteError(result.status);
    } else {
      ids_acknowledged_ += slot->ids.size();
      push_ns_.push_back(now - slot->sent_ns);
      Bucket& bucket = BucketOf(now);
      ++bucket.pushes;
      bucket.push_max_ns = std::max(bucket.push_max_ns, now - slot->sent_ns);
      if (static_cast<double>(now - slot->sent_ns) > o_.slow_ms * 1e6) {
        slow_.push_back({slot->shard, slot->sent_ns, now});
      }
    }
    idle_.push_back(slot);
    --under_way_;
  }

  void Pull(Slot* slot) {
    slot->rows.resize(slot->ids.size() * table_->dim());
    PullFeature feature;
    feature.table = table_;
    feature.ids = slot->ids;
    feature.rows = slot->rows.data();
    Begin(slot);
    client_->Pull({&feature, 1}).Then([this, slot](const absl::Status& status) {
      const int64_t now = Clock::Real()->NowNs();
      absl::MutexLock lock(&mu_);
      if (status.ok()) {
        pull_ns_.push_back(now - slot->sent_ns);
        Bucket& bucket = BucketOf(now);
        ++bucket.pulls;
        bucket.pull_max_ns = std::max(bucket.pull_max_ns, now - slot->sent_ns);
      } else {
        ++errors_;
        NoteError(status);
      }
      idle_.push_back(slot);
      --under_way_;
    });
  }

  Bucket& BucketOf(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const size_t at =
        static_cast<size_t>(static_cast<double>(now - begin_ns_) / o_.bucket_ms / 1e6);
    if (buckets_.size() <= at) buckets_.resize(at + 1);
    return buckets_[at];
  }

  void NoteError(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!first_error_.empty()) return;
    first_error_ = status.ToString();
    for (char& c : first_error_) c = c == '"' || c == '\\' || c == '\n' ? '\'' : c;
  }

  // Waits for all calls, and asks again for what became of those that nobody told.
  absl::Status Drain() {
    std::vector<std::pair<PushResult, size_t>> unresolved;
    {
      absl::MutexLock lock(&mu_);
      const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return under_way_ == 0; };
      mu_.Await(absl::Condition(&none));
      unresolved.swap(unresolved_);
    }
    for (auto& [result, ids] : unresolved) {
      for (int i = 0; i < kResolvesMax && result.outcome == PushResult::Outcome::kIndeterminate;
           ++i) {
        result = client_->Retry(result, kResolveDeadline).Wait();
      }
      if (result.outcome != PushResult::Outcome::kApplied) return result.status;
      absl::MutexLock lock(&mu_);
      ids_acknowledged_ += ids;
    }
    return absl::OkStatus();
  }

  const Options o_;
  Random random_;
  std::unique_ptr<Client> client_;
  const Table* table_ = nullptr;
  std::vector<ShardRecord> shards_;
  uint64_t step_ = 0;
  int64_t begin_ns_ = 0;
  std::vector<int64_t> next_ns_;  // by shard
  uint64_t overdue_turns_ = 0;    // no flight was free for a push that was due

  absl::Mutex mu_;
  std::vector<Slot*> idle_ ABSL_GUARDED_BY(mu_);
  uint64_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Bucket> buckets_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> push_ns_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> pull_ns_ ABSL_GUARDED_BY(mu_);
  std::vector<Slow> slow_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<PushResult, size_t>> unresolved_ ABSL_GUARDED_BY(mu_);
  uint64_t ids_acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t errors_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t indeterminate_ ABSL_GUARDED_BY(mu_) = 0;
  std::string first_error_ ABSL_GUARDED_BY(mu_);
};

int Main(int argc, char** argv) {
  CLI::App app("Load on one table, told over time.");
  app.require_subcommand(1);
  Options o;
  CLI::App* const shards = app.add_subcommand("shards", "one push in flight to each shard");
  CLI::App* const load = app.add_subcommand("load", "pushes and pulls");
  CLI::App* const sum = app.add_subcommand("sum", "the sum of column 0");
  for (CLI::App* mode : {shards, load, sum}) {
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
  Meter meter(o);
  absl::Status status = meter.Open();
  if (status.ok()) {
    status = sum->parsed() ? meter.Sum() : shards->parsed() ? meter.RunShards() : meter.RunLoad();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "hotbed-load-meter: %s\n", status.ToString().c_str());
    return 3;
  }
  if (!sum->parsed()) meter.Print();
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
