#include "server/peers/transfer_stream.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/net/message_slices.h"
#include "server/net/stream_metrics.h"
#include "server/peers/transfer_wire.h"

namespace hotbed {

TransferStream::TransferStream(PeerPlane* plane, RawReplicaService* service,
                               grpc::ServerCompletionQueue* queue)
    : BidiStream({std::numeric_limits<uint32_t>::max(), std::numeric_limits<uint64_t>::max(),
                  plane->write_timeout_ms},
                 &plane->watch),
      plane_(plane),
      service_(service),
      queue_(queue) {
  plane_->calls.fetch_add(1);
}

TransferStream::~TransferStream() {
  plane_->budget->Forget(this);
  if (number_ != 0) plane_->inbox.Close(from_, number_);
  if (counted_) plane_->streams.fetch_sub(1);
  plane_->calls.fetch_sub(1);
}

void TransferStream::Start(PeerPlane* plane, RawReplicaService* service,
                           grpc::ServerCompletionQueue* queue) {
  (new TransferStream(plane, service, queue))->Accept();
}

void TransferStream::RequestCall(grpc::ServerContext* context, RawStream* stream,
                                 void* accept_tag) {
  service_->RequestTransfer(context, stream, queue_, queue_, accept_tag);
}

// Accepts also while the server drains: its pushes in flight need the replies of followers.
bool TransferStream::OnAccepted(grpc::Status* refusal) {
  Start(plane_, service_, queue_);
  counted_ = true;
  if (plane_->streams.fetch_add(1) < kStreamsMax) return true;
  *refusal = grpc::Status(
      grpc::StatusCode::RESOURCE_EXHAUSTED,
      absl::StrCat("this server has ", kStreamsMax, " streams of other servers open, its limit"));
  return false;
}

absl::Status TransferStream::CheckHello(const v1::TransferHeader& header) const {
  if (!header.has_hello() || header.from().server() == 0) {
    return absl::InvalidArgumentError(
        "the first message of a transfer stream carries no hello, or does not say from whom: set "
        "header.hello and header.from");
  }
  const v1::Hello& hello = header.hello();
  if (hello.wire_version() != kWireVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "hello.wire_version is ", hello.wire_version(), ", this server speaks ", kWireVersion));
  }
  const Member self = plane_->inbox.self();
  if (self.server == 0) {
    return absl::UnavailableError("this server is not registered at its coordinator yet");
  }
  if (const std::string ours = plane_->inbox.cluster_id(); hello.cluster_id() != ours) {
    return absl::FailedPreconditionError(absl::StrCat("server ", header.from().server(),
                                                      " belongs to cluster '", hello.cluster_id(),
                                                      "', this server to cluster '", ours, "'"));
  }
  if (const Member to = FromWire(header.to()); !(to == self)) {
    return absl::FailedPreconditionError(
        absl::StrCat("meant for server ", to.server, " incarnation ", to.incarnation, ", this is ",
                     self.server, " incarnation ", self.incarnation));
  }
  return absl::OkStatus();
}

void TransferStream::Greet() {
  v1::TransferReply reply;
  v1::Hello* const hello = reply.mutable_hello();
  hello->set_cluster_id(plane_->inbox.cluster_id());
  hello->set_wire_version(kWireVersion);
  hello->set_feature_level(kFeatureLevel);
  grpc::Slice slice(reply.SerializeAsString());
  grpc::ByteBuffer answer(&slice, 1);
  OpenRequest(0);
  Answer(&answer, 0, 0, /*greets=*/true);
}

absl::Status TransferStream::Take(Fragments fragments) {
  static thread_local TransferView view;  // the generated header keeps its memory
  HOTBED_RETURN_IF_ERROR(ParseTransferMessage(fragments, &view));
  if (number_ == 0) {
    HOTBED_RETURN_IF_ERROR(CheckHello(view.header));
    from_ = FromWire(view.header.from());
    HOTBED_ASSIGN_OR_RETURN(number_, plane_->inbox.Open(from_));
    Greet();
  }
  // Items in front of an error count: they were sent in order, and whole.
  const absl::Status read =
      DecodeTransfer(fragments, view, plane_->inbox.self(), plane_->budget.get(), &messages_);
  if (!plane_->inbox.Deliver(from_, number_, &messages_)) {
    messages_.clear();
    return absl::AbortedError("a newer stream of this server has taken its place");
  }
  return read;
}

void TransferStream::OnMessage(grpc::ByteBuffer* raw) {
  static thread_local MessageSlices slices;
  StreamMetrics& metrics = StreamMetrics::Get();
  metrics.transfer_messages.Add(1);
  metrics.transfer_bytes.Add(raw->Length());
  slices.Load(*raw);
  raw->Clear();
  const absl::Status taken = Take(slices.fragments);
  slices.Clear();
  if (!taken.ok()) return End(taken);
  if (plane_->budget->MayRead(this)) ReadOn();
}

void TransferStream::End(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) StreamMetrics::Get().streams_failed.Add(1);
  HOTBED_LOG_EVERY_S(Warning, 5) << "stream of server " << from_.server
                                 << " ended: " << status.message();
  Fail(grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message())));
}

}  // namespace hotbed
