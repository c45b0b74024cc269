#include "tests/checker/slow_calls.h"

#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json.h"

namespace hotbed::checker {
namespace {

std::string Begin(const char* call, uint64_t step, int64_t sent_ns, int64_t now_ns) {
  return absl::StrCat("{\"call\":\"", call, "\"", step == 0 ? "" : absl::StrCat(",\"step\":", step),
                      ",\"sent_ns\":", sent_ns, ",\"now_ns\":", now_ns);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlowCalls>> SlowCalls::Open(const std::string& path,
                                                           absl::Duration after) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return absl::UnknownError(absl::StrCat(path, ": ", std::strerror(errno)));
  return std::unique_ptr<SlowCalls>(new SlowCalls(file, after));
}

SlowCalls::~SlowCalls() { std::fclose(file_); }

void SlowCalls::Write(const std::string& line) {
  std::fprintf(file_, "%s\n", line.c_str());
  std::fflush(file_);  // the process may be killed at any moment
}

void SlowCalls::PushWaits(uint64_t step, int64_t sent_ns, int64_t now_ns,
                          const std::vector<PushResult>& unanswered) {
  std::set<std::string> shards;  // of several parts each is told once
  std::string last;
  for (const PushResult& push : unanswered) {
    if (push.step != step) continue;
    last = std::string(push.status.message());
    for (const PushResult::Shard& shard : push.shards) {
      shards.insert(JsonString(absl::StrCat(shard.table, "/", shard.index)));
    }
  }
  Write(absl::StrCat(Begin("push", step, sent_ns, now_ns), ",\"shards\":[",
                     absl::StrJoin(shards, ","), "],\"last\":", JsonString(last), "}"));
}

void SlowCalls::PushAnswered(uint64_t step, int64_t sent_ns, int64_t now_ns) {
  Write(absl::StrCat(Begin("push", step, sent_ns, now_ns), "}"));
}

void SlowCalls::PullAnswered(int64_t sent_ns, int64_t now_ns) {
  Write(absl::StrCat(Begin("pull", 0, sent_ns, now_ns), "}"));
}

}  // namespace hotbed::checker
