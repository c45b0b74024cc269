#include "bench/rated_lookups.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "common/clock.h"

namespace hotbed::bench {
namespace {

constexpr uint64_t kOpenMax = 4096;  // calls without an answer; further ones are sent late

struct Call {
  int64_t due_ns = 0;
  grpc::ClientContext context;
  v1::ServingLookupReply reply;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ServingLookupReply>> reader;
};

std::chrono::system_clock::time_point In(int64_t ns) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::chrono::nanoseconds(ns));
}

void Note(const Call& call, int64_t deadline_ns, RatedResult* result) {
  const int64_t taken_ns = Clock::Real()->NowNs() - call.due_ns;
  if (call.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
    ++result->refused;
  } else if (!call.status.ok() || taken_ns > deadline_ns) {
    ++result->late;
  } else {
    result->ms.push_back(static_cast<double>(taken_ns) / 1e6);
  }
}

}  // namespace

RatedResult LookUpAtRate(v1::Serving::Stub* stub, const RatedLoad& load) {
  grpc::CompletionQueue queue;
  RatedResult result;
  const int64_t begin_ns = Clock::Real()->NowNs();
  const auto calls = static_cast<uint64_t>(load.per_s * load.seconds);
  uint64_t sent = 0, answered = 0;
  const auto due_ns = [&] {
    const double after_s = static_cast<double>(sent) / load.per_s;
    return begin_ns + static_cast<int64_t>(after_s * static_cast<double>(kSecondNs));
  };
  while (answered < calls) {
    while (sent < calls && due_ns() <= Clock::Real()->NowNs() && sent - answered < kOpenMax) {
      auto* const call = new Call;
      call->due_ns = due_ns();
      call->context.set_deadline(In(call->due_ns - Clock::Real()->NowNs() + load.deadline_ns));
      call->reader =
          stub->AsyncLookup(&call->context, load.requests[sent % load.requests.size()], &queue);
      call->reader->Finish(&call->reply, &call->status, call);
      ++sent;
    }
    const int64_t wait_ns = sent == calls ? kSecondNs : due_ns() - Clock::Real()->NowNs();
    void* tag = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&tag, &ok, In(wait_ns)) != grpc::CompletionQueue::GOT_EVENT) continue;
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    Note(*call, load.deadline_ns, &result);
    ++answered;
  }
  return result;
}

}  // namespace hotbed::bench
