// A pull from the wire to the shard host and back: the request is parsed in place, the host gathers
// the rows straight into the answer's buffer, and the header is written in front of them. Nothing
// is copied after the gather.
//
// PullStream is one stream of such messages, several in flight, answered in the order of
// completion. Pulls and lookups have streams of their own, which differ in the budget of their
// answers and in what counts them. A unary lookup is a stream of one message.
#ifndef HOTBED_SERVER_STREAMS_PULL_STREAM_H_
#define HOTBED_SERVER_STREAMS_PULL_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/net/answer_pool.h"
#include "server/net/byte_budget.h"
#include "server/shard/request/requests.h"
#include "server/streams/data_plane.h"
#include "server/streams/data_stream.h"
#include "server/streams/wire_reply.h"

namespace hotbed {

class PullMessage;

// Receives a PullMessage when its answer can be encoded.
class PullSink {
 public:
  virtual ~PullSink() = default;
  virtual void PullDone(PullMessage* message) = 0;  // any thread
  virtual bool abandoned() const = 0;               // the answer is no longer wanted
  virtual ByteBudget* budget() = 0;                 // that the answer takes its bytes from
  virtual ByteBudget::Account* account() = 0;       // that they are counted to
};

// Recycled: Take() begins a life, Recycle() ends it. In between a message belongs to one sink.
class PullMessage final : public PullWork, private ByteBudget::Waiter {
 public:
  static PullMessage* Take();
  ~PullMessage() override;

  // Cuts `message` into segments. Not OK: it cannot be parsed, and the stream must end. A message
  // that parses but exceeds a limit or is inconsistent is refused as a whole, in its answer; a
  // segment of a table that `tables` does not allow, alone. Null: all tables.
  absl::Status Parse(const grpc::ByteBuffer& message, DataPlane* plane, int64_t now_ns,
                     uint64_t peer_message_bytes_max, StreamTables* tables = nullptr);
  // Waits for the budget, gathers, then passes itself to `sink`, perhaps before it returns, perhaps
  // on another thread.
  void Run(PullSink* sink);
  // It was kept back, for lack of room, since it was parsed.
  void NoteKeptBack() { stages.Note(RequestStages::kMemory, stages.begun_ns(), 0); }
  // The answer, with `hello` if not null. Once, after PullDone.
  grpc::ByteBuffer Encode(const v1::Hello* hello);
  // Ends its life. The `reserved()` bytes of the pull budget stay with the answer: its sender
  // releases them.
  void Recycle();

  // The hello of the parsed message; null if it carried none.
  const v1::Hello* hello() const { return has_hello_ ? &hello_ : nullptr; }
  // Memory held while the message is open.
  uint64_t bytes() const { return request_bytes_ + answer_bytes_ + stage_bytes_; }
  uint64_t reserved() const { return reserved_ ? bytes() : 0; }
  uint64_t rows() const { return rows_; }
  // For the log of slow requests, until Recycle.
  AnsweredRequest Describe() const;
  int64_t arrival_ns() const { return arrival_ns_; }

 private:
  void Done() override { sink_->PullDone(this); }  // PullWork
  void Granted() override;                         // ByteBudget::Waiter
  void Expired() override;
  bool Gone() const override { return sink_->abandoned(); }
  void Work();
  void Refuse(SegmentCode code, std::string detail);

  // Offsets of a segment's parts in the request, and its bytes of the answer.
  struct SegmentPlace {
    uint64_t id_at = 0;
    uint64_t length_at = 0;
    uint64_t weight_at = 0;
    uint64_t row_bytes = 0;
    uint64_t arg_bytes = 0;
    bool weighted = false;
  };
  // pull_segments.cc
  void TakeHeader(const PullRequestView& view, uint64_t peer_message_bytes_max,
                  StreamTables* tables);
  void TakeSegments(const PullRequestView& view, StreamTables* tables);
  void TakeGroup(const v1::PullGroup& group, Shard* const* found, StreamTables* tables,
                 SegmentPlace* at);
  std::string SegmentError(const v1::PullGroup& group, const PullSegment& segment) const;
  void RefuseLast(SegmentCode code, std::string error);
  void SizeRows(const PullSegment& segment, bool want_arg_max, SegmentPlace* place);
  void SizeAnswer(uint64_t peer_message_bytes_max);
  void CopyBulk(Fragments fragments, const PullRequestView& view);
  void PlaceRows();

  void FillReply(const v1::Hello* hello, v1::ReplyHeader* header);
  void FillRowBytes(v1::ReplyHeader* header) const;
  grpc::ByteBuffer EncodeParts(const v1::ReplyHeader& header, uint64_t rows_sent,
                               uint64_t flags_sent, uint64_t args_sent);

  DataPlane* plane_ = nullptr;
  PullSink* sink_ = nullptr;
  // As long as the longest message so far: they never shrink, since growing fills with zeros.
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> lengths_;
  std::vector<float> weights_;
  AnswerBuffer* answer_ = nullptr;
  std::vector<SegmentPlace> places_;  // parallel to `segments`
  SegmentRefusals refusals_;
  Refusal refusal_;
  v1::Hello hello_;
  bool has_hello_ = false;
  bool want_flags_ = false;
  bool reserved_ = false;
  uint32_t asked_ = 0;  // segments in the request
  uint64_t request_ = 0;
  uint64_t request_bytes_ = 0;
  uint64_t answer_bytes_ = 0;
  uint64_t stage_bytes_ = 0;  // that pooled segments may hold while they read spilled rows
  uint64_t row_bytes_ = 0;    // of all admitted segments
  uint64_t arg_bytes_ = 0;    // the same
  uint64_t rows_ = 0;         // ids of all admitted segments
  uint64_t rows_at_ = 0;      // where rows begin in the answer buffer
  uint64_t flags_at_ = 0;     // and flags, behind the rows and the tag of the flags
  uint64_t args_at_ = 0;      // and arg_max, behind the flags and its tag
  // Why the field's values cannot be told apart; empty: they can.
  std::string lengths_misfit_;
  std::string weights_misfit_;
  int64_t arrival_ns_ = 0;
  RequestTraces traces_;
};

class PullStream final : public DataStream, private PullSink {
 public:
  // Waits for a client; when one comes, the next stream is started on the same queue. `kind` is
  // kPull or kLookup.
  static void Start(RequestKind kind, DataPlane* plane, RawDataService* service,
                    grpc::ServerCompletionQueue* queue);

 private:
  PullStream(RequestKind kind, DataPlane* plane, RawDataService* service,
             grpc::ServerCompletionQueue* queue)
      : DataStream(plane, service, queue), kind_(kind) {}

  bool looks_up() const { return kind_ == RequestKind::kLookup; }
  void StartNext() override { Start(kind_, plane_, service_, queue_); }
  const char* method() const override { return looks_up() ? "Lookup" : "Pull"; }
  bool may_be_unary() const override { return looks_up(); }
  void RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) override;
  void OnMessage(grpc::ByteBuffer* raw) override;
  void OnReleased(uint64_t reserved) override;
  void OnRoom(void* held) override;
  void Run(PullMessage* message);
  void PullDone(PullMessage* message) override;
  bool abandoned() const override { return cancelled(); }
  ByteBudget* budget() override {
    return looks_up() ? &plane_->lookup_budget : &plane_->pull_budget;
  }
  ByteBudget::Account* account() override {
    return looks_up() ? &connection()->lookups : &connection()->pulls;
  }
  void OnStalled() override { budget()->Stalled(account()); }

  const RequestKind kind_;
  uint64_t peer_message_bytes_max_ = 0;  // touched by OnMessage only
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_PULL_STREAM_H_
