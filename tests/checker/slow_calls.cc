#include "tests/checker/slow_calls.h"

#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/threads/await_for.h"

namespace hotbed::checker {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);
constexpr int kLookShare = 5;  // pushes are reported after this part of `after`

}  // namespace

absl::StatusOr<std::unique_ptr<SlowCalls>> SlowCalls::Open(const std::string& path,
                                                           absl::Duration after,
                                                           const Client* client) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return absl::UnknownError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::unique_ptr<SlowCalls> calls(new SlowCalls(file, after, client));
  if (after > absl::ZeroDuration()) {
    calls->watcher_ = std::thread([c = calls.get()] { c->Watch(); });
  }
  return calls;
}

SlowCalls::~SlowCalls() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (watcher_.joinable()) watcher_.join();
  std::fclose(file_);
}

void SlowCalls::Watch() {
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(&mu_, absl::Condition(&stops_), kBetweenLooks)) return;
    }
    const int64_t now_ns = Clock::Real()->NowNs();
    for (const PushResult& push : client_->UnansweredPushes(after_ / kLookShare)) {
      PushWaits(push, now_ns);
    }
  }
}

bool SlowCalls::Slow(int64_t sent_ns, int64_t now_ns) const {
  return after_ > absl::ZeroDuration() && absl::Nanoseconds(now_ns - sent_ns) > after_;
}

void SlowCalls::Write(const std::string& line) {
  absl::MutexLock lock(&mu_);
  std::fprintf(file_, "%s\n", line.c_str());
  std::fflush(file_);  // the process may be killed at any moment
}

void SlowCalls::PushWaits(const PushResult& push, int64_t now_ns) {
  std::set<std::string> shards;  // a shard may have several parts
  for (const PushResult::Shard& shard : push.shards) {
    shards.insert(JsonString(absl::StrCat(shard.table, "/", shard.index)));
  }
  Write(absl::StrCat("{\"call\":\"push\",\"step\":", push.step, ",\"now_ns\":", now_ns,
                     ",\"shards\":[", absl::StrJoin(shards, ","),
                     "],\"last\":", JsonString(push.status.message()), "}"));
}

void SlowCalls::PushAnswered(uint64_t step, int64_t sent_ns, int64_t now_ns) {
  if (!Slow(sent_ns, now_ns)) return;
  Write(absl::StrCat("{\"call\":\"push\",\"step\":", step, ",\"sent_ns\":", sent_ns,
                     ",\"now_ns\":", now_ns, "}"));
}

void SlowCalls::PullAnswered(int64_t sent_ns, int64_t now_ns) {
  if (!Slow(sent_ns, now_ns)) return;
  Write(absl::StrCat("{\"call\":\"pull\",\"sent_ns\":", sent_ns, ",\"now_ns\":", now_ns, "}"));
}

}  // namespace hotbed::checker
