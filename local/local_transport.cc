#include "local/local_transport.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <deque>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/net/completion_poller.h"
#include "client/net/grpc_message.h"
#include "client/net/server_stream.h"
#include "server/streams/pull_stream.h"
#include "server/streams/push_stream.h"

namespace hotbed {
namespace {

class LocalTransport;

// One request, from Send to its answer. Deletes itself.
class LocalCall final : public CompletionEvent, private PullSink, private PushSink {
 public:
  LocalCall(LocalTransport* transport, Lane lane, OutgoingMessage message,
            std::shared_ptr<PendingRequest> request);

  // Puts it into the completion queue.
  void Post();
  void Run(bool ok) override;

 private:
  void Begin();
  void BeginPull(const grpc::ByteBuffer& message);
  void BeginPush(const grpc::ByteBuffer& message);
  // One of the things that the answer waits for has happened: the message was given to the host,
  // its answer is encoded, and (pushes) the host has taken it. True for the last.
  bool Arrive() { return waits_for_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  void ArriveElsewhere() {
    if (Arrive()) Post();
  }
  void Deliver();

  void PullDone(PullMessage* message) override;
  ByteBudget* budget() override;
  void PushDone(PushMessage* message) override;
  void BeforeHost() override {}
  void HostHasTaken() override;
  bool abandoned() const override;
  ByteBudget::Account* account() override { return nullptr; }

  LocalTransport* const transport_;
  DataPlane* const plane_;
  const Lane lane_;
  const uint64_t row_bytes_;  // as in OutgoingMessage
  OutgoingMessage message_;
  const std::shared_ptr<PendingRequest> request_;
  grpc::Alarm posted_;
  bool begun_ = false;
  std::atomic<int> waits_for_;
  absl::Status failed_;
  grpc::ByteBuffer answer_;
  uint64_t reserved_ = 0;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalEngine> engine, int threads)
      : engine_(std::move(engine)), driver_(std::make_shared<CompletionPoller>(threads)) {}

  ~LocalTransport() override {
    closing_.store(true);
    live_.AwaitNone();
    driver_->Shutdown();
  }

  void Send(const std::string& /*address*/, Lane lane, OutgoingMessage message,
            std::shared_ptr<PendingRequest> request) override {
    sent_.fetch_add(1, std::memory_order_relaxed);
    sent_bytes_.fetch_add(message.Bytes(), std::memory_order_relaxed);
    live_.Add();
    auto* const call = new LocalCall(this, lane, std::move(message), std::move(request));
    if (lane == Lane::kPush) {
      absl::MutexLock lock(&mu_);
      pushes_.push_back(call);
      if (pushes_.size() > 1) return;
    }
    call->Post();
  }

  // The host has taken the first push: the next one may go to it.
  void NextPush() {
    absl::MutexLock lock(&mu_);
    pushes_.pop_front();
    if (!pushes_.empty()) pushes_.front()->Post();
  }

  void Ended(uint64_t bytes) {
    received_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    live_.Remove();
  }

  void SetSession(uint64_t, uint64_t) override {}  // pushes carry it
  void SetClusterId(const std::string&) override {}
  uint64_t MessageBytesMax() const override { return engine_->plane()->limits.message_bytes_max; }
  ClientStats Stats() const override {
    return {.bytes_sent = sent_bytes_.load(),
            .bytes_received = received_bytes_.load(),
            .messages = sent_.load()};
  }
  std::shared_ptr<WaitDriver> driver() override { return driver_; }

  DataPlane* plane() { return engine_->plane(); }
  grpc::CompletionQueue* queue() { return driver_->queue(); }
  bool closing() const { return closing_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<LocalEngine> engine_;
  const std::shared_ptr<CompletionPoller> driver_;  // shared with the futures
  LiveCount live_;
  std::atomic<bool> closing_{false};
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<uint64_t> received_bytes_{0};

  absl::Mutex mu_;
  std::deque<LocalCall*> pushes_ ABSL_GUARDED_BY(mu_);  // the first is on its way to the host
};

LocalCall::LocalCall(LocalTransport* transport, Lane lane, OutgoingMessage message,
                     std::shared_ptr<PendingRequest> request)
    : transport_(transport),
      plane_(transport->plane()),
      lane_(lane),
      row_bytes_(message.row_bytes),
      message_(std::move(message)),
      request_(std::move(request)),
      waits_for_(lane == Lane::kPush ? 3 : 2) {}

void LocalCall::Post() {
  posted_.Set(transport_->queue(), gpr_inf_past(GPR_CLOCK_MONOTONIC), this);
}

void LocalCall::Run(bool /*ok*/) {
  if (begun_) return Deliver();
  begun_ = true;
  Begin();
  if (Arrive()) Deliver();
}

void LocalCall::Begin() {
  v1::PullHeader prefix;  // a PushHeader has the same fields except for the deadline
  prefix.set_request(1);
  if (lane_ != Lane::kPush) prefix.set_deadline_ms(message_.deadline_ms);
  const grpc::ByteBuffer message = ToByteBuffer(prefix.SerializeAsString(), std::move(message_));
  lane_ == Lane::kPush ? BeginPush(message) : BeginPull(message);
}

void LocalCall::BeginPull(const grpc::ByteBuffer& message) {
  PullMessage* const pull = PullMessage::Take();
  failed_ = pull->Parse(message, plane_, plane_->clock->NowNs(), plane_->limits.message_bytes_max);
  if (failed_.ok()) return pull->Run(this);
  pull->Recycle();
  Arrive();
}

void LocalCall::BeginPush(const grpc::ByteBuffer& message) {
  PushMessage* const push = PushMessage::Take();
  failed_ = push->Parse(message, plane_, plane_->clock->NowNs());
  if (failed_.ok()) return push->Run(this);
  push->Recycle();
  Arrive();
  HostHasTaken();
}

void LocalCall::PullDone(PullMessage* message) {
  answer_ = message->Encode(nullptr);
  reserved_ = message->reserved();
  message->Recycle();
  ArriveElsewhere();
}

void LocalCall::PushDone(PushMessage* message) {
  answer_ = EncodeHeaderOnly(message->Reply(nullptr));
  reserved_ = message->reserved();
  message->Recycle();
  ArriveElsewhere();
}

void LocalCall::HostHasTaken() {
  transport_->NextPush();
  ArriveElsewhere();
}

bool LocalCall::abandoned() const { return transport_->closing() || request_->Abandoned(); }

ByteBudget* LocalCall::budget() {
  return lane_ == Lane::kLookup ? &plane_->lookup_budget : &plane_->pull_budget;
}

void LocalCall::Deliver() {
  thread_local ReceivedMessage received;
  if (transport_->closing()) failed_ = absl::CancelledError("the client closes");
  if (failed_.ok()) failed_ = received.Parse(answer_);
  const ServerReply reply = failed_.ok() ? received.reply(row_bytes_) : ServerReply();
  request_->Done(failed_, failed_.ok() ? &reply : nullptr);
  const uint64_t bytes = answer_.Length();
  if (reserved_ > 0) (lane_ == Lane::kPush ? &plane_->push_budget : budget())->Release(reserved_);
  LocalTransport* const transport = transport_;
  delete this;
  transport->Ended(bytes);
}

}  // namespace

std::unique_ptr<Transport> NewLocalTransport(std::shared_ptr<LocalEngine> engine, int threads) {
  return std::make_unique<LocalTransport>(std::move(engine), threads);
}

}  // namespace hotbed
