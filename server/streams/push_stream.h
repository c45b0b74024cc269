// A push from the wire to the shard host: the request is parsed in place, with one pointer per
// gradient row into the message's own memory, and acknowledged when the host is done with it.
//
// Messages of one stream reach the host in the order in which they were sent, which a session's
// sequence depends on: the next message is read after the host has taken this one. The host may
// finish them in any order.
#ifndef HOTBED_SERVER_STREAMS_PUSH_STREAM_H_
#define HOTBED_SERVER_STREAMS_PUSH_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/wire.h"
#include "server/net/byte_budget.h"
#include "server/net/message_slices.h"
#include "server/shard/request/requests.h"
#include "server/streams/data_plane.h"
#include "server/streams/data_stream.h"
#include "server/streams/wire_reply.h"

namespace hotbed {

class PushMessage;

// Receives a PushMessage when its answer can be encoded.
class PushSink {
 public:
  virtual ~PushSink() = default;
  virtual void PushDone(PushMessage* message) = 0;  // any thread, perhaps before HostHasTaken
  virtual bool abandoned() const = 0;               // the answer is no longer wanted
  virtual ByteBudget::Account* account() = 0;       // that its bytes are counted to
  // The sink lives from BeforeHost to HostHasTaken, each of which is called once: after the second
  // the session's next message may go to the host.
  virtual void BeforeHost() = 0;
  virtual void HostHasTaken() = 0;
};

// Recycled: Take() begins a life, Recycle() ends it. In between a message belongs to one sink.
class PushMessage final : public PushWork, private ByteBudget::Waiter {
 public:
  static PushMessage* Take();

  // As PullMessage::Parse.
  absl::Status Parse(const grpc::ByteBuffer& message, DataPlane* plane, int64_t now_ns,
                     StreamTables* tables = nullptr);
  // Waits for the budget, then passes itself to the host, perhaps after this has returned.
  void Run(PushSink* sink);
  // The reply lives in the calling thread's storage, until its next call.
  v1::ReplyHeader& Reply(const v1::Hello* hello);
  void Recycle();

  const v1::Hello* hello() const { return has_hello_ ? &hello_ : nullptr; }
  uint64_t bytes() const { return slices_.bytes; }
  uint64_t reserved() const { return reserved_ ? bytes() : 0; }
  int64_t arrival_ns() const { return arrival_ns_; }
  // For the log of slow requests, until Recycle.
  AnsweredRequest Describe() const;

 private:
  void Done() override;     // PushWork
  void Granted() override;  // ByteBudget::Waiter
  void Expired() override;
  bool Gone() const override;
  void Work();
  void Refuse(SegmentCode code, std::string detail);
  bool TakeHeader(const PushRequestView& view);
  // The state of the bulk fields while the segments are looked at.
  struct KnownBytes {
    uint64_t ids = 0;
    uint64_t bytes = 0;    // of gradients
    uint32_t unknown = 0;  // a segment whose dim is not known, and its ids, if any
    uint64_t unknown_ids = 0;
  };
  bool FindDims(const PushRequestView& view);
  bool FindDim(uint32_t number, ShardId id, uint32_t ids, uint32_t dim, bool shows,
               KnownBytes* known);
  void AddSegments(const PushRequestView& view, StreamTables* tables);
  void AddGroup(const v1::PushGroup& group, uint32_t first, StreamTables* tables, uint64_t* at,
                FragmentReader* reader);
  std::string SegmentError(const PushSegment& segment, uint32_t count, uint64_t row_bytes,
                           const v1::PushGroup& group, uint32_t number) const;
  void RefuseLast(SegmentCode code, std::string error);
  void AddCommits(const v1::PushHeader& header, const v1::PushGroup& group, uint32_t first,
                  StreamTables* tables);

  DataPlane* plane_ = nullptr;
  PushSink* sink_ = nullptr;
  MessageSlices slices_;       // memory that the gradient pointers point into
  WireScratch scratch_;        // rows that straddle slices
  std::vector<uint64_t> ids_;  // ids_ and gradients_ are as long as the longest message so far
  std::vector<const uint8_t*> gradients_;
  std::vector<Shard*> found_;        // of the request's segments
  std::vector<uint64_t> row_bytes_;  // bytes per gradient row, by segment of the request
  std::vector<std::vector<uint64_t>> commit_sessions_;  // of each commit of the header
  SegmentRefusals refusals_;
  Refusal refusal_;
  v1::Hello hello_;
  bool has_hello_ = false;
  bool reserved_ = false;
  uint32_t asked_ = 0;
  uint64_t request_ = 0;
  int64_t arrival_ns_ = 0;
  RequestTraces traces_;
};

class PushStream final : public DataStream, private PushSink {
 public:
  // Waits for a client; when one comes, the next stream is started on the same queue.
  static void Start(DataPlane* plane, RawDataService* service, grpc::ServerCompletionQueue* queue);

 private:
  using DataStream::DataStream;

  void StartNext() override { Start(plane_, service_, queue_); }
  const char* method() const override { return "Push"; }
  void RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) override;
  void OnMessage(grpc::ByteBuffer* raw) override;
  void OnReleased(uint64_t reserved) override;
  void PushDone(PushMessage* message) override;
  bool abandoned() const override { return cancelled(); }
  ByteBudget::Account* account() override { return &connection()->pushes; }
  void BeforeHost() override { Ref(); }
  void HostHasTaken() override {
    ReadOn();
    Unref();
  }
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_PUSH_STREAM_H_
