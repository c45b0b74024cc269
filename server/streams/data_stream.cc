#include "server/streams/data_stream.h"

namespace hotbed {

DataStream::DataStream(DataPlane* plane, RawDataService* service,
                       grpc::ServerCompletionQueue* queue)
    : BidiStream({plane->limits.messages_in_flight_max, plane->limits.stream_bytes_in_flight_max,
                  plane->limits.write_timeout_ms},
                 &plane->watch),
      plane_(plane),
      service_(service),
      queue_(queue) {
  plane_->calls.fetch_add(1);
}

DataStream::~DataStream() {
  connection_.reset();  // before the plane may go
  if (counted_) plane_->streams.fetch_sub(1);
  plane_->calls.fetch_sub(1);
}

bool DataStream::OnAccepted(grpc::Status* refusal) {
  StartNext();
  connection_ = plane_->accounts.Of(peer());
  tables_ = plane_->TablesOf(context(), method());
  if (may_be_unary()) return true;
  counted_ = true;
  *refusal = AdmitStream(plane_);
  return refusal->ok();
}

}  // namespace hotbed
