#include "server/peers/peer_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "proto/grpc_tuning.h"
#include "proto/wire.h"
#include "security/channel_credentials.h"
#include "server/peers/replica_metrics.h"
#include "server/peers/transfer_wire.h"

namespace hotbed {
namespace {

constexpr char kMethod[] = "/hotbed.v1.Replica/Transfer";
constexpr size_t kJoinedItemsMax = 4096;
// After a stream that was open for this long the backoff starts over.
constexpr int64_t kGoodStreamNs = 1'000'000'000;

uint64_t WireBytes(const ReplicaMessage& message) { return kItemBytes + BodyBytes(message); }

}  // namespace

// One stream with a connection of its own: gRPC waits at least 100 ms before it retries a failed
// connection.
struct PeerStream::Call {
  Call(const std::string& address, const ClientIdentity& identity)
      : stub(grpc::CreateCustomChannel(address, ChannelCredentialsOf(identity),
                                       PeerChannelArguments(identity.files.any()))) {}
  grpc::GenericStub stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  grpc::ByteBuffer incoming;
  grpc::Status status;
};

PeerStream::PeerStream(const PeerStreamOptions& options, Ends ends, grpc::CompletionQueue* queue,
                       ReplicaInbox* inbox, const Clock* clock, std::atomic<int>* live)
    : options_(options),
      ends_(std::move(ends)),
      queue_(queue),
      inbox_(inbox),
      clock_(clock),
      live_(live),
      start_tag_(this, [](void* l, bool ok) { static_cast<PeerStream*>(l)->OnStart(ok); }),
      read_tag_(this, [](void* l, bool ok) { static_cast<PeerStream*>(l)->OnRead(ok); }),
      write_tag_(this, [](void* l, bool ok) { static_cast<PeerStream*>(l)->OnWrite(ok); }),
      finish_tag_(this, [](void* l, bool) { static_cast<PeerStream*>(l)->OnFinish(); }),
      retry_tag_(this, [](void* l, bool ok) { static_cast<PeerStream*>(l)->OnRetry(ok); }),
      tell_tag_(this, [](void* l, bool) { static_cast<PeerStream*>(l)->OnTell(); }),
      random_(options.jitter_seed) {}

PeerStream::~PeerStream() = default;

RpcTag* PeerStream::Arm(RpcTag* tag) {
  if (armed_++ == 0) {
    self_ = shared_from_this();
    live_->fetch_add(1);
  }
  return tag;
}

void PeerStream::Disarm() {
  absl::MutexLock lock(&mu_);
  HOTBED_DCHECK(armed_ > 0) << "an event of an operation that was not armed";
  if (--armed_ > 0) return;
  live_->fetch_sub(1);
  self_.reset();  // not the last reference: the Event has one
}

void PeerStream::Send(ReplicaMessage message) {
  const uint64_t bytes = WireBytes(message);
  std::vector<ReplicaMessage> batch;
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return;
    const bool full = !waiting_.empty() && queued_bytes_ + bytes > options_.queue_bytes_max;
    if (owes_loss_ || full) {
      if (!owes_loss_) ReplicaMetrics::Get().overflows.Add(1);
      owes_loss_ = true;
      ReplicaMetrics::Get().dropped_items.Add(1);
      return;
    }
    queued_bytes_ += bytes;
    waiting_.push_back(std::move(message));
    if (state_ == State::kIdle) return OpenStream();
    if (state_ != State::kOpen || writing_) return;
    const bool may_wait = queued_bytes_ < options_.joined_bytes_max;
    if (may_wait && ReplicaBatch::Defer(shared_from_this())) return;
    if (!TakeBatch(&batch)) return;
  }
  Write(batch);
}

void PeerStream::Flush() {
  std::vector<ReplicaMessage> batch;
  {
    absl::MutexLock lock(&mu_);
    if (!TakeBatch(&batch)) return;
  }
  Write(batch);
}

void PeerStream::TellLost() {
  absl::MutexLock lock(&mu_);
  owes_loss_ = true;
  if (!MayTell() || telling_) return;
  telling_ = true;
  tell_alarm_.Set(queue_, std::chrono::system_clock::now(), Arm(&tell_tag_));
}

uint64_t PeerStream::queued_bytes() const {
  absl::MutexLock lock(&mu_);
  const uint64_t bytes = queued_bytes_ + writing_bytes_;
  return owes_loss_ || closed_ ? std::max(bytes, options_.queue_bytes_max) : bytes;
}

uint64_t PeerStream::waiting_bytes() const {
  absl::MutexLock lock(&mu_);
  return queued_bytes_ + writing_bytes_;
}

bool PeerStream::open() const {
  absl::MutexLock lock(&mu_);
  return state_ == State::kOpen;
}

void PeerStream::Close() {
  absl::MutexLock lock(&mu_);
  if (closed_) return;
  closed_ = true;
  Drop();
  if (state_ == State::kWaiting) retry_alarm_.Cancel();
  if (call_ != nullptr) call_->context.TryCancel();
}

void PeerStream::OpenStream() {
  state_ = State::kOpening;
  call_ = std::make_unique<Call>(ends_.address, options_.identity);
  call_->stream = call_->stub.PrepareCall(&call_->context, kMethod, queue_);
  call_->stream->StartCall(Arm(&start_tag_));
}

void PeerStream::OnStart(bool ok) {
  const Event event(this);
  absl::MutexLock lock(&mu_);
  if (!ok || closed_) return Fail();
  reading_ = true;
  call_->stream->Read(&call_->incoming, Arm(&read_tag_));
  WriteHello();
}

void PeerStream::WriteHello() {
  v1::TransferHeader header;
  v1::Hello* const hello = header.mutable_hello();
  hello->set_cluster_id(ends_.cluster_id);
  hello->set_wire_version(kWireVersion);
  hello->set_feature_level(kFeatureLevel);
  ToWire(ends_.self, header.mutable_from());
  ToWire(ends_.peer, header.mutable_to());
  writing_ = true;
  call_->stream->Write(EncodeTransfer({}, &header), Arm(&write_tag_));
}

void PeerStream::OnRead(bool ok) {
  const Event event(this);
  {
    absl::MutexLock lock(&mu_);
    reading_ = false;
    if (!ok || closed_) return Fail();
    if (state_ == State::kOpening) {  // its hello, the only message it ever sends
      state_ = State::kOpen;
      opened_ns_ = clock_->NowNs();
      broken_ = false;
      ReplicaMetrics::Get().streams_opened.Add(1);
      HOTBED_LOG_EVERY_S(Info, 1) << "stream to server " << ends_.peer.server << " at "
                                  << ends_.address << " is open";
    }
    call_->incoming.Clear();
    reading_ = true;
    call_->stream->Read(&call_->incoming, Arm(&read_tag_));
  }
  Continue();
}

void PeerStream::OnWrite(bool ok) {
  const Event event(this);
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    writing_bytes_ = 0;
    if (!ok || closed_ || state_ == State::kEnding) return Fail();
  }
  Continue();
}

bool PeerStream::MayTell() const {
  return owes_loss_ && waiting_.empty() && !writing_ && state_ != State::kEnding;
}

void PeerStream::Continue() {
  bool tell = false;
  {
    absl::MutexLock lock(&mu_);
    tell = MayTell() && !telling_;
    if (tell) telling_ = true;
  }
  if (tell) {
    inbox_->Lost(ends_.peer, [this] {
      absl::MutexLock lock(&mu_);
      owes_loss_ = telling_ = false;
    });
  }
  Flush();
}

bool PeerStream::TakeBatch(std::vector<ReplicaMessage>* batch) {
  if (state_ != State::kOpen || writing_ || waiting_.empty()) return false;
  uint64_t bytes = 0;
  do {
    const uint64_t next = WireBytes(waiting_.front());
    if (!batch->empty() && bytes + next > options_.joined_bytes_max) break;
    bytes += next;
    batch->push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  } while (!waiting_.empty() && batch->size() < kJoinedItemsMax);
  queued_bytes_ -= bytes;
  writing_bytes_ = bytes;
  writing_ = true;
  Arm(&write_tag_);
  return true;
}

// The stream stays while writing_ is set: it is finished only after its write has completed.
void PeerStream::Write(const std::vector<ReplicaMessage>& batch) {
  static thread_local v1::TransferHeader header;  // keeps its memory
  header.Clear();
  const grpc::ByteBuffer buffer = EncodeTransfer(batch, &header);
  ReplicaMetrics& metrics = ReplicaMetrics::Get();
  metrics.sent_messages.Add(1);
  metrics.sent_items.Add(batch.size());
  metrics.sent_bytes.Add(buffer.Length());
  for (const ReplicaMessage& message : batch) {
    if (message.kind == ReplicaMessage::Kind::kSnapshotRows) {
      metrics.copied_bytes.Add(message.body.bytes.size());
    }
  }
  grpc::WriteOptions options;
  options.set_no_compression();
  call_->stream->Write(buffer, options, &write_tag_);
}

void PeerStream::Fail() {
  const bool was_open = state_ == State::kOpen;
  state_ = State::kEnding;
  if (was_open) {
    broken_ = true;
    owes_loss_ = true;
    Drop();
    if (clock_->NowNs() - opened_ns_ >= kGoodStreamNs) backoff_ms_ = 0;
  }
  if (reading_ || writing_) return;
  call_->stream->Finish(&call_->status, Arm(&finish_tag_));
}

void PeerStream::Drop() {
  if (!waiting_.empty()) owes_loss_ = true;
  ReplicaMetrics::Get().dropped_items.Add(waiting_.size());
  waiting_.clear();
  queued_bytes_ = 0;
}

void PeerStream::OnFinish() {
  const Event event(this);
  {
    absl::MutexLock lock(&mu_);
    const grpc::Status status = call_->status;
    call_.reset();
    if (!closed_) {
      HOTBED_LOG_EVERY_S(Warning, 5)
          << "stream to server " << ends_.peer.server << " at " << ends_.address << ": "
          << (status.ok() ? "ended by the peer" : status.error_message())
          << "; trying again (in all: " << ReplicaMetrics::Get().streams_broken.Value() << ")";
    }
    ReplicaMetrics::Get().streams_broken.Add(1);
    state_ = State::kIdle;
    if (!closed_ && (broken_ || !waiting_.empty())) WaitForRetry();
  }
  Continue();
}

void PeerStream::WaitForRetry() {
  state_ = State::kWaiting;
  backoff_ms_ = std::clamp(2 * backoff_ms_, options_.backoff_min_ms, options_.backoff_max_ms);
  const int64_t ms = backoff_ms_ / 2 + static_cast<int64_t>(random_.Uniform(backoff_ms_ / 2 + 1));
  retry_alarm_.Set(queue_, std::chrono::system_clock::now() + std::chrono::milliseconds(ms),
                   Arm(&retry_tag_));
}

void PeerStream::OnRetry(bool /*ok*/) {
  const Event event(this);
  absl::MutexLock lock(&mu_);
  state_ = State::kIdle;
  if (!closed_) OpenStream();
}

void PeerStream::OnTell() {
  const Event event(this);
  {
    absl::MutexLock lock(&mu_);
    telling_ = false;
  }
  Continue();
}

}  // namespace hotbed
