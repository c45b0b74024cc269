#include "bench/roofs/stream_client.h"

#include <chrono>
#include <utility>

#include "bench/roofs/stopwatch.h"

namespace hotbed::roofs {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

StreamClient::StreamClient(grpc::GenericStub* stub, const std::string& method, int in_flight,
                           NextMessage next, CheckReply check)
    : next_(std::move(next)), check_(std::move(check)), in_flight_(in_flight), to_send_(in_flight) {
  stream_ = stub->PrepareCall(&context_, method, &queue_);
  stream_->StartCall(reinterpret_cast<void*>(Tag::kStarted));
}

StreamClient::~StreamClient() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

void StreamClient::Send() {
  writing_ = to_send_ > 0;
  if (!writing_) return;
  --to_send_;
  stream_->Write(next_(sent_++), reinterpret_cast<void*>(Tag::kWritten));
}

void StreamClient::Handle(Tag tag, bool ok) {
  if (!ok) {
    failed_ = true;
    return;
  }
  switch (tag) {
    case Tag::kStarted:
      stream_->Read(&reply_, reinterpret_cast<void*>(Tag::kRead));
      return Send();
    case Tag::kWritten:
      return Send();
    case Tag::kRead:
      ++received_;
      if (!check_(reply_)) failed_ = true;
      reply_.Clear();
      stream_->Read(&reply_, reinterpret_cast<void*>(Tag::kRead));
      ++to_send_;
      if (!writing_) Send();
      return;
  }
}

bool StreamClient::ServeUntil(uint64_t received, double seconds) {
  const auto begin = Clock::now();
  void* tag;
  bool ok;
  while (!failed_ && received_ < received && Since(begin) < seconds) {
    if (!queue_.Next(&tag, &ok)) return false;
    Handle(static_cast<Tag>(reinterpret_cast<intptr_t>(tag)), ok);
  }
  return !failed_;
}

absl::StatusOr<double> StreamClient::Run(double seconds) {
  bool alive = ServeUntil(received_ + 4 * in_flight_, 10.0);
  const uint64_t before = received_;
  const auto begin = Clock::now();
  alive = alive && ServeUntil(~uint64_t{0}, seconds);
  const double took = Since(begin);
  if (!alive) return absl::UnavailableError("the stream ended, or a reply was not as it should be");
  return (received_ - before) / took;
}

}  // namespace hotbed::roofs
