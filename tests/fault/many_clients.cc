#include "tests/fault/many_clients.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "hotbed/client.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr int kThreads = 4;
// So many pulls of a thread, and one of its clients is replaced.
constexpr int kPullsPerConnect = 25;

struct One {
  std::unique_ptr<Client> client;
  const Table* table = nullptr;
};

class ManyClients {
 public:
  ManyClients(const ManyClientsOptions& options, volatile sig_atomic_t* stop)
      : o_(options), stop_(stop), begin_ns_(Clock::Real()->NowNs()) {}

  std::string Run() {
    std::vector<std::thread> threads;
    auto* const all_connected = new absl::Barrier(kThreads + 1);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, t, all_connected] { Work(t, all_connected); });
    }
    if (all_connected->Block()) delete all_connected;
    const double connected_s = SecondsSince(begin_ns_);
    for (std::thread& thread : threads) thread.join();
    absl::MutexLock lock(&mu_);
    return nlohmann::json({{"clients", o_.clients},
                           {"connected_s", connected_s},
                           {"slowest_connect_s", slowest_connect_s_},
                           {"connects", connects_},
                           {"pulls", pulls_},
                           {"errors", errors_},
                           {"first_error", first_error_}})
        .dump();
  }

 private:
  static double SecondsSince(int64_t ns) {
    return static_cast<double>(Clock::Real()->NowNs() - ns) * 1e-9;
  }

  // The share of one thread.
  void Work(int thread, absl::Barrier* all_connected) {
    std::vector<One> mine;
    for (int i = thread; i < o_.clients && *stop_ == 0; i += kThreads) mine.push_back(Connected());
    if (all_connected->Block()) delete all_connected;
    const int64_t begin_ns = Clock::Real()->NowNs();
    for (uint64_t turn = 1; *stop_ == 0 && SecondsSince(begin_ns) < o_.seconds; ++turn) {
      if (mine.empty()) return;
      Clock::Real()->SleepNs(
          static_cast<int64_t>(kSecondNs / (o_.pulls_per_s * static_cast<double>(mine.size()))));
      One& one = mine[turn % mine.size()];
      if (turn % kPullsPerConnect == 0 || one.client == nullptr) one = Connected();
      if (one.client != nullptr) Note(Pull(one), &pulls_);
    }
  }

  One Connected() {
    One one;
    const int64_t begin_ns = Clock::Real()->NowNs();
    const absl::Status status = Connect(&one);
    if (!status.ok()) one = One();
    Note(status, &connects_);
    absl::MutexLock lock(&mu_);
    slowest_connect_s_ = std::max(slowest_connect_s_, SecondsSince(begin_ns));
    return one;
  }

  absl::Status Connect(One* one) const {
    ClientOptions options;
    options.deadline = absl::Milliseconds(o_.deadline_ms);
    HOTBED_ASSIGN_OR_RETURN(one->client,
                            Client::Connect(absl::StrCat("hotbed://", o_.coordinator), options));
    HOTBED_ASSIGN_OR_RETURN(one->table, one->client->OpenTable(o_.table));
    return Pull(*one);
  }

  static absl::Status Pull(const One& one) {
    const uint64_t id = 1;
    std::vector<float> row(one.table->dim());
    PullFeature feature;
    feature.table = one.table;
    feature.ids = {&id, 1};
    feature.rows = row.data();
    return one.client->Pull({&feature, 1}).Wait();
  }

  void Note(const absl::Status& status, uint64_t* count) {
    absl::MutexLock lock(&mu_);
    ++*count;
    if (status.ok() || errors_++ > 0) return;
    first_error_ = status.ToString();
  }

  const ManyClientsOptions o_;
  volatile sig_atomic_t* const stop_;
  const int64_t begin_ns_;
  absl::Mutex mu_;
  uint64_t connects_ = 0;  // these and the next are written under mu_ alone
  uint64_t pulls_ = 0;
  uint64_t errors_ ABSL_GUARDED_BY(mu_) = 0;
  double slowest_connect_s_ ABSL_GUARDED_BY(mu_) = 0;
  std::string first_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::string RunManyClients(const ManyClientsOptions& options, volatile sig_atomic_t* stop) {
  return ManyClients(options, stop).Run();
}

}  // namespace hotbed
