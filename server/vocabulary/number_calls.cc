#include "server/vocabulary/number_calls.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "common/threads/await_for.h"
#include "server/shard/shard.h"
#include "server/vocabulary/number_answer.h"

namespace hotbed {
namespace {

// Most of a call is waiting for the log.
constexpr int kNumberThreads = 4;
constexpr absl::Duration kNumberLook = absl::Milliseconds(500);
constexpr uint32_t kCallTimeoutMsMax = 600'000;
// Keys and counts, and what is beside them.
constexpr size_t kNumberMessageBytesMax = kNumberKeysMax * 12 + (64 << 10);

struct NumberCallMetrics {
  Counter refused{"hotbed_server_vocabulary_refused_total",
                  "Calls to vocabularies refused because too many waited."};
  LatencyHistogram seconds{"hotbed_server_vocabulary_seconds",
                           "Time that a call to a vocabulary takes, without the wait before it."};
};
NumberCallMetrics& CallNumbers() {
  static auto* const metrics = new NumberCallMetrics;
  return *metrics;
}

}  // namespace

NumberCalls::NumberCalls(ShardHost* host, const Clock* clock) : host_(host), clock_(clock) {
  RegisterNumberMetrics();
  CallNumbers();
  for (int i = 0; i < kNumberThreads; ++i) threads_.emplace_back([this] { Work(); });
}

void NumberCalls::Stop() {
  std::deque<Waiting> calls;
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
    calls.swap(calls_);
  }
  for (const Waiting& call : calls) {
    call.done(absl::UnavailableError("this server is stopping"), nullptr);
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void NumberCalls::Call(v1::NumberRequest request, const ToolCalls::MayUse& may_use,
                       ToolCalls::Done done) {
  const ShardId id = ShardId::FromPacked(request.shard());
  const std::shared_ptr<Shard> shard = host_->Find(id);
  absl::Status refused;
  if (shard == nullptr) {
    refused = absl::UnavailableError(absl::StrCat(id.ToString(), " is not here"));
  }
  if (refused.ok() && may_use) refused = may_use(ShardHost::TableNameOf(*shard));
  if (refused.ok()) refused = CheckNumberRequest(request, shard->table());
  if (refused.ok()) {
    absl::MutexLock lock(&mu_);
    if (stops_) {
      refused = absl::UnavailableError("this server is stopping");
    } else if (calls_.size() >= kNumberCallsMax) {
      CallNumbers().refused.Add(1);
      refused = absl::ResourceExhaustedError(absl::StrCat(
          calls_.size(), " calls to vocabularies wait at this server, the limit; ask again"));
    } else {
      const int64_t timeout_ms = std::min(request.timeout_ms(), kCallTimeoutMsMax);
      const int64_t deadline_ns = clock_->NowNs() + timeout_ms * kMillisecondNs;
      calls_.push_back({std::move(request), deadline_ns, std::move(done)});
      return;
    }
  }
  done(refused, nullptr);
}

std::deque<NumberCalls::Waiting>::iterator NumberCalls::FirstFree() {
  return std::find_if(calls_.begin(), calls_.end(),
                      [this](const Waiting& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                        return !busy_.contains(call.request.shard());
                      });
}

void NumberCalls::Work() {
  for (;;) {
    Waiting call;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || FirstFree() != calls_.end();
      };
      AwaitFor(&mu_, absl::Condition(&wakes), kNumberLook);
      const auto first = FirstFree();
      if (first == calls_.end() && stops_) return;
      if (first == calls_.end()) continue;
      call = std::move(*first);
      calls_.erase(first);
      busy_.insert(call.request.shard());
    }
    const int64_t begin_ns = clock_->NowNs();
    absl::StatusOr<v1::NumberReply> reply = absl::DeadlineExceededError(absl::StrCat(
        "the call waited for longer than its ", call.request.timeout_ms(), " ms; ask again"));
    if (begin_ns < call.deadline_ns) {
      reply = AnswerNumber(host_, call.request, *clock_, call.deadline_ns);
      CallNumbers().seconds.RecordNs(clock_->NowNs() - begin_ns);
    }
    {
      absl::MutexLock lock(&mu_);
      busy_.erase(call.request.shard());
    }
    if (reply.ok()) {
      call.done(reply->SerializeAsString(), nullptr);
    } else {
      call.done(reply.status(), nullptr);
    }
  }
}

std::map<std::string, ToolCalls::SlowCall> VocabularyCalls(NumberCalls* numbers) {
  ToolCalls::SlowCall method;
  method.message_bytes_max = kNumberMessageBytesMax;
  method.begin = [numbers](const std::string& message, const ToolCalls::Caller& caller,
                           ToolCalls::Done done) {
    v1::NumberRequest request;
    if (!request.ParseFromString(message)) {
      return done(absl::InvalidArgumentError(
                      absl::StrCat("a NumberRequest of ", message.size(), " bytes does not parse")),
                  nullptr);
    }
    numbers->Call(std::move(request), caller.may_use, std::move(done));
  };
  return {{"/hotbed.v1.Vocabularies/Number", std::move(method)}};
}

}  // namespace hotbed
