#include "server/streams/lookup_service.h"

#include <chrono>

#include "server/net/stream_metrics.h"
#include "server/streams/wire_reply.h"

namespace hotbed {
namespace {

// Answers up to this size leave whether or not their client reads: they fit the window of a new
// connection.
constexpr uint64_t kWatchedBytes = 16 << 10;

// The caller's gRPC deadline on the server's clock; 0: none.
int64_t DeadlineNs(const grpc::ServerContext& context, int64_t now_ns) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return 0;
  const auto left = deadline - std::chrono::system_clock::now();
  return now_ns + std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
}

}  // namespace

LookupCall::LookupCall(DataPlane* plane, RawDataService* service,
                       grpc::ServerCompletionQueue* queue)
    : plane_(plane),
      service_(service),
      queue_(queue),
      accept_tag_(this, [](void* c, bool ok) { static_cast<LookupCall*>(c)->OnAcceptDone(ok); }),
      finish_tag_(this, [](void* c, bool) { static_cast<LookupCall*>(c)->OnFinished(); }) {
  plane_->calls.fetch_add(1);
}

LookupCall::~LookupCall() {
  connection_.reset();  // before the plane may go
  plane_->calls.fetch_sub(1);
}

void LookupCall::Start(DataPlane* plane, RawDataService* service,
                       grpc::ServerCompletionQueue* queue) {
  auto* const call = new LookupCall(plane, service, queue);
  service->RequestLookup(&call->context_, &call->request_, &call->responder_, queue, queue,
                         &call->accept_tag_);
}

void LookupCall::OnAcceptDone(bool ok) {
  if (!ok) {  // the server is shutting down
    delete this;
    return;
  }
  Start(plane_, service_, queue_);
  StreamMetrics::Get().lookup_messages.Add(1);
  connection_ = plane_->accounts.Of(context_.peer());
  PullMessage* const message = PullMessage::Take();
  const int64_t now_ns = plane_->clock->NowNs();
  StreamTables tables = plane_->TablesOf(context_, "Lookup");
  grpc::Status status = StreamError(message->Parse(request_, plane_, now_ns, 0, tables.limited()));
  request_.Clear();
  if (status.ok() && message->hello() != nullptr) status = CheckHello(message->hello(), *plane_);
  if (!status.ok()) {
    message->Recycle();
    responder_.FinishWithError(status, &finish_tag_);
    return;
  }
  if (message->deadline_ns == 0) message->deadline_ns = DeadlineNs(context_, now_ns);
  message->Run(this);
}

void LookupCall::PullDone(PullMessage* message) {
  v1::Hello hello;
  if (message->hello() != nullptr) FillHello(*plane_, &hello);
  const int64_t since_ns = message->stages.NowNs();
  grpc::ByteBuffer answer = message->Encode(message->hello() != nullptr ? &hello : nullptr);
  const int64_t took_ns = plane_->clock->NowNs() - message->arrival_ns();
  StreamMetrics::Get().lookup_seconds.RecordNs(took_ns);
  LogIfSlow(&plane_->slow, RequestKind::kLookup, *message, took_ns, since_ns,
            connection_->lookups.peer);
  reserved_ = message->reserved();
  message->Recycle();
  watched_ = answer.Length() > kWatchedBytes;
  if (watched_) plane_->watch.Add(this);
  responder_.Finish(answer, grpc::Status::OK, &finish_tag_);
}

void LookupCall::OnFinished() {
  if (watched_) plane_->watch.Remove(this);
  if (reserved_ > 0) plane_->lookup_budget.Release(reserved_, account());
  Unref();
}

bool LookupCall::TryWatch() { return TryRef(&refs_); }

void LookupCall::Tick(int64_t /*now_ns*/) {
  const int64_t ticks_max = StreamWatch::TicksOf(plane_->limits.write_timeout_ms);
  if (++ticks_ == StreamWatch::TicksOf(BidiStream::kStalledMs)) {
    plane_->lookup_budget.Stalled(account());
  }
  if (ticks_ != ticks_max) return;
  StreamMetrics::Get().streams_stalled.Add(1);
  context_.TryCancel();
}

void LookupCall::Unref() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

}  // namespace hotbed
