#include "server/output/softmax_calls.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "server/output/softmax_shard.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr absl::Duration kSoftmaxLook = absl::Milliseconds(500);
constexpr int kSoftmaxThreadsMax = 16;
constexpr size_t kSoftmaxMessageBytesMax = 4 * kSoftmaxHiddenBytesMax;

struct SoftmaxMetrics {
  Counter tokens{"hotbed_server_softmax_tokens_total",
                 "Tokens of calls of the output layer, once per call and server."};
  Counter refused{"hotbed_server_softmax_refused_total",
                  "Calls of the output layer refused because too many waited."};
  LatencyHistogram seconds{"hotbed_server_softmax_seconds",
                           "Time from a call of the output layer to its answer."};
};
SoftmaxMetrics& SoftmaxNumbers() {
  static auto* const metrics = new SoftmaxMetrics;
  return *metrics;
}

struct MemoryWait final : ByteBudget::Waiter {
  void Granted() override {
    granted = true;
    ended.Notify();
  }
  void Expired() override { ended.Notify(); }
  bool granted = false;
  absl::Notification ended;
};

template <typename T>
void SetBytes(const std::vector<T>& values, std::string* bytes) {
  bytes->assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

// One call, whose shards several threads compute.
struct SoftmaxCalls::Running {
  Running(const v1::SoftmaxRequest& asked, SoftmaxInput read)
      : request(asked), input(std::move(read)), results(asked.shards_size()), sums(input) {}

  struct Result {
    v1::SoftmaxShardReply reply;
    std::optional<SoftmaxSums> sums;
    bool ended = false;
  };

  const v1::SoftmaxRequest request;
  const SoftmaxInput input;
  ToolCalls::Done done;
  int64_t begin_ns = 0;
  int64_t deadline_ns = 0;
  ByteBudget* memory = nullptr;  // null: not counted
  uint64_t bytes = 0;            // taken from it, once `admitted`
  absl::Mutex mu;
  bool admitted ABSL_GUARDED_BY(mu) = false;
  absl::Status refused ABSL_GUARDED_BY(mu);
  int next ABSL_GUARDED_BY(mu) = 0;   // shard that nobody computes yet
  int added ABSL_GUARDED_BY(mu) = 0;  // results before it are in `sums`
  std::vector<Result> results ABSL_GUARDED_BY(mu);
  SoftmaxSums sums ABSL_GUARDED_BY(mu);
  std::vector<float> logits ABSL_GUARDED_BY(mu);  // of all shards, in their order

  // A shard that nobody computes yet, or -1. Waits while `ahead` shards are behind the last result
  // that was added up, since each has memory.
  int Next(int ahead) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    const auto may = [this, ahead]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
      return next == request.shards_size() || next < added + ahead;
    };
    mu.Await(absl::Condition(&may));
    return next == request.shards_size() ? -1 : next++;
  }

  // The result of one shard; true: it was the last one.
  bool End(int shard, v1::SoftmaxShardReply reply, SoftmaxSums of_shard) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    Result& result = results[shard];
    result.reply = std::move(reply);
    if (result.reply.code() == v1::OK) result.sums = std::move(of_shard);
    result.ended = true;
    for (; added < static_cast<int>(results.size()) && results[added].ended; ++added) {
      if (!results[added].sums.has_value()) continue;
      sums.Add(*results[added].sums);
      logits.insert(logits.end(), results[added].sums->logits.begin(),
                    results[added].sums->logits.end());
      results[added].sums.reset();
    }
    return added == static_cast<int>(results.size());
  }

  absl::StatusOr<std::string> Answer() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    HOTBED_RETURN_IF_ERROR(refused);
    v1::SoftmaxReply reply;
    for (Result& result : results) *reply.add_shards() = std::move(result.reply);
    SetBytes(sums.maxima, reply.mutable_maxima());
    SetBytes(sums.sums, reply.mutable_sums());
    SetBytes(sums.totals, reply.mutable_totals());
    SetBytes(sums.target_logits, reply.mutable_target_logits());
    const std::vector<float> gradient(sums.hidden_gradient.begin(), sums.hidden_gradient.end());
    SetBytes(gradient, reply.mutable_hidden_gradient());
    SetBytes(logits, reply.mutable_logits());
    return reply.SerializeAsString();
  }
};

int SoftmaxCalls::Threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency() / 2), 1,
                    kSoftmaxThreadsMax);
}

SoftmaxCalls::SoftmaxCalls(ShardHost* host, const Clock* clock, int threads)
    : host_(host), clock_(clock) {
  SoftmaxNumbers();
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

void SoftmaxCalls::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

SoftmaxInput::What SoftmaxCalls::WhatOf(bool gradient, const v1::SoftmaxRequest& request) {
  return !gradient              ? SoftmaxInput::What::kStatistics
         : request.has_update() ? SoftmaxInput::What::kUpdate
                                : SoftmaxInput::What::kHiddenGradient;
}

absl::StatusOr<std::shared_ptr<SoftmaxCalls::Running>> SoftmaxCalls::Begin(
    SoftmaxInput::What what, const v1::SoftmaxRequest& request, const ToolCalls::MayUse& may_use) {
  if (request.shards_size() < 1 || request.shards_size() > kSoftmaxShardsMax) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", request.shards_size(),
                                                   " shards, allowed: 1..", kSoftmaxShardsMax));
  }
  std::shared_ptr<Shard> any;
  for (const v1::SoftmaxShard& shard : request.shards()) {
    const ShardId id = ShardId::FromPacked(shard.shard());
    if (id.table != request.table()) {
      return absl::InvalidArgumentError(
          absl::StrCat(id.ToString(), " is asked for, allowed: shards of table ", request.table()));
    }
    if (any == nullptr) any = host_->Find(id);
  }
  if (any == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no shard of table ", request.table(), " that was asked for is here"));
  }
  if (may_use) HOTBED_RETURN_IF_ERROR(may_use(ShardHost::TableNameOf(*any)));
  HOTBED_ASSIGN_OR_RETURN(SoftmaxInput input, SoftmaxInput::Read(request, any->table(), what));
  auto call = std::make_shared<Running>(request, std::move(input));
  call->begin_ns = clock_->NowNs();
  call->deadline_ns = call->begin_ns + request.timeout_ms() * kMillisecondNs;
  return call;
}

void SoftmaxCalls::Call(SoftmaxInput::What what, const v1::SoftmaxRequest& request,
                        const ToolCalls::MayUse& may_use, ToolCalls::Done done) {
  absl::StatusOr<std::shared_ptr<Running>> call = Begin(what, request, may_use);
  if (!call.ok()) return done(call.status(), nullptr);
  absl::Status refused;
  {
    absl::MutexLock lock(&mu_);
    if (stops_) {
      refused = absl::UnavailableError("this server is stopping");
    } else if (calls_.size() >= kSoftmaxCallsMax) {
      refused = absl::ResourceExhaustedError(absl::StrCat(
          calls_.size(), " calls of the output layer wait at this server, the limit; ask again"));
    } else {
      (*call)->done = std::move(done);
      calls_.push_back(*std::move(call));
      return;
    }
  }
  SoftmaxNumbers().refused.Add(1);
  done(refused, nullptr);
}

absl::StatusOr<v1::SoftmaxReply> SoftmaxCalls::Answer(SoftmaxInput::What what,
                                                      const v1::SoftmaxRequest& request) {
  absl::StatusOr<std::string> answer = absl::UnknownError("no answer");
  absl::Notification answered;
  Call(what, request, nullptr,
       [&](absl::StatusOr<std::string> given, const std::shared_ptr<const void>&) {
         answer = std::move(given);
         answered.Notify();
       });
  answered.WaitForNotification();
  if (!answer.ok()) return answer.status();
  v1::SoftmaxReply reply;
  if (!reply.ParseFromString(*answer)) return absl::InternalError("an answer does not parse");
  return reply;
}

void SoftmaxCalls::Work() {
  for (;;) {
    std::shared_ptr<Running> call;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || !calls_.empty();
      };
      AwaitFor(&mu_, absl::Condition(&wakes), kSoftmaxLook);
      if (calls_.empty() && stops_) return;
      if (calls_.empty()) continue;
      call = calls_.front();
    }
    WorkOn(call.get());
    absl::MutexLock lock(&mu_);
    if (!calls_.empty() && calls_.front() == call) calls_.pop_front();
  }
}

absl::Status SoftmaxCalls::AwaitMemory(ByteBudget* memory, const Running& call) {
  MemoryWait wait;
  const ByteBudget::Outcome reserved =
      memory->Reserve(call.bytes, {.waiter = &wait, .deadline_ns = call.deadline_ns});
  if (reserved == ByteBudget::Outcome::kReserved) return absl::OkStatus();
  if (reserved == ByteBudget::Outcome::kWaiting) wait.ended.WaitForNotification();
  if (wait.granted) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a call of the output layer with ", call.input.tokens, " tokens takes ",
                   call.bytes, " bytes, and of --pull-bytes-in-flight-max=", memory->bytes_max(),
                   " ", memory->in_flight(), " are in flight; ask again, or send fewer tokens"));
}

void SoftmaxCalls::WorkOn(Running* call) {
  {
    // Others wait here meanwhile, since without memory there is nothing to do.
    absl::MutexLock lock(&call->mu);
    if (!call->admitted && call->refused.ok()) {
      const int threads = std::min<int>(threads_.size(), call->request.shards_size());
      call->memory = memory_.load();
      call->bytes = SoftmaxInput::BytesOf(call->request, call->input.dim, threads);
      if (call->memory != nullptr) call->refused = AwaitMemory(call->memory, *call);
      call->admitted = call->refused.ok();
      if (!call->admitted) {
        call->next = call->request.shards_size();
        call->done(call->refused, nullptr);
      }
    }
  }
  SoftmaxShard shard(host_, &call->input, &call->request, call->deadline_ns);
  for (;;) {
    const int next = call->Next(2 * static_cast<int>(threads_.size()));
    if (next < 0) return;
    SoftmaxSums sums(call->input);
    v1::SoftmaxShardReply reply;
    shard.Run(call->request.shards(next), &sums, &reply);
    if (!call->End(next, std::move(reply), std::move(sums))) continue;
    SoftmaxNumbers().tokens.Add(call->input.tokens);
    SoftmaxNumbers().seconds.RecordNs(clock_->NowNs() - call->begin_ns);
    const std::shared_ptr<const void> held(
        nullptr, [memory = call->memory, bytes = call->bytes](const void*) {
          if (memory != nullptr) memory->Release(bytes);
        });
    return call->done(call->Answer(), held);
  }
}

namespace {

ToolCalls::SlowCall SoftmaxMethod(SoftmaxCalls* softmax, bool gradient) {
  ToolCalls::SlowCall method;
  method.message_bytes_max = kSoftmaxMessageBytesMax;
  method.begin = [softmax, gradient](const std::string& message, const ToolCalls::Caller& caller,
                                     ToolCalls::Done done) {
    v1::SoftmaxRequest request;
    if (!request.ParseFromString(message)) {
      return done(absl::InvalidArgumentError(absl::StrCat("a SoftmaxRequest of ", message.size(),
                                                          " bytes does not parse")),
                  nullptr);
    }
    softmax->Call(SoftmaxCalls::WhatOf(gradient, request), request, caller.may_use,
                  std::move(done));
  };
  return method;
}

}  // namespace

std::map<std::string, ToolCalls::SlowCall> OutputCalls(SoftmaxCalls* softmax) {
  return {{"/hotbed.v1.OutputLayer/Softmax", SoftmaxMethod(softmax, /*gradient=*/false)},
          {"/hotbed.v1.OutputLayer/SoftmaxGradient", SoftmaxMethod(softmax, /*gradient=*/true)}};
}

}  // namespace hotbed
