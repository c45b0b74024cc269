// The log of requests that took long: which, how much, and how long in each stage.
//
// Thread-safe. The usual request costs a comparison.
#ifndef HOTBED_SERVER_STREAMS_SLOW_REQUESTS_H_
#define HOTBED_SERVER_STREAMS_SLOW_REQUESTS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "google/protobuf/repeated_field.h"
#include "server/host/shard_host.h"
#include "server/shard/request/request_stages.h"
#include "server/shard/request/requests.h"

namespace hotbed {

enum class RequestKind : uint8_t { kPull, kPush, kLookup };

// The trace contexts of a message that are valid. The others are counted.
class RequestTraces {
 public:
  // More are not looked at, and counted: a message has as many as calls were joined in it.
  static constexpr size_t kTracesMax = 16;

  void Take(const google::protobuf::RepeatedPtrField<std::string>& traceparents) {
    if (!traces_.empty()) traces_.clear();
    if (!traceparents.empty()) TakeValid(traceparents);
  }
  const std::vector<std::string>& traces() const { return traces_; }  // the ids

 private:
  void TakeValid(const google::protobuf::RepeatedPtrField<std::string>& traceparents);
  std::vector<std::string> traces_;
};

// A request whose answer is encoded.
struct AnsweredRequest {
  RequestKind kind = RequestKind::kPull;
  int64_t took_ns = 0;    // since it arrived
  int64_t answer_ns = 0;  // of it, to encode the answer
  uint64_t rows = 0;
  uint64_t request_bytes = 0;
  uint64_t answer_bytes = 0;  // of rows
  std::string peer;
  const RequestTraces* traces = nullptr;
  const RequestStages* stages = nullptr;

  struct Segment {
    std::string table;  // its name
    uint32_t index = 0;
  };
  std::vector<Segment> segments;  // in the order of the message
};

// One line without an end, such as
//   slow push of 1204 ms: table user, shards 0 7; 2048 rows, 530144 bytes in, 0 bytes of rows out;
//   memory 0 ms, strand 2 ms (user/7), state 0 ms, log 800 ms (user/7), replicas 390 ms (user/0),
//   rows 3 ms (user/7), answer 0 ms; from ipv4:127.0.0.1:4242; trace 4bf9...
std::string SlowRequestText(const AnsweredRequest& request);

class SlowRequests {
 public:
  static constexpr uint32_t kLinesPerS = 10;

  // `clock` counts the lines of a second, `stages` is the clock of RequestStages. 0 ms: nothing is
  // slow.
  SlowRequests(int64_t threshold_ms, const Clock* clock, const Clock* stages)
      : threshold_ns_(threshold_ms > 0 ? threshold_ms * kMillisecondNs : INT64_MAX),
        clock_(clock),
        stage_clock_(threshold_ms > 0 ? stages : nullptr) {}

  const Clock* stage_clock() const { return stage_clock_; }
  bool IsSlow(int64_t took_ns) const { return took_ns >= threshold_ns_; }
  // Counts a slow request. False: this second has had enough lines; the next line then says how
  // many are missing.
  bool TakeLine(RequestKind kind);
  void Log(const AnsweredRequest& request);

  // A clock with steps of some milliseconds that costs a third of Clock::Real(); never deleted. Not
  // comparable with Clock::Real().
  static const Clock* CoarseClock();

 private:
  const int64_t threshold_ns_;
  const Clock* const clock_;
  const Clock* const stage_clock_;
  std::atomic<int64_t> second_{-1};  // since which lines_ counts
  std::atomic<uint32_t> lines_{0};
  std::atomic<uint64_t> left_out_{0};
};

// The segments of a work, as far as their tables are known.
template <typename Segments>
void DescribeSegments(const Segments& segments, AnsweredRequest* request) {
  for (const auto& segment : segments) {
    request->segments.push_back({segment.shard != nullptr
                                     ? ShardHost::TableNameOf(*segment.shard)
                                     : absl::StrCat("number ", segment.shard_id.table),
                                 segment.shard_id.index});
  }
}

// To be called when the answer of a PullMessage or PushMessage is encoded; `answer_since_ns` is
// when that began, by the clock of its stages.
template <typename Message>
void LogIfSlow(SlowRequests* slow, RequestKind kind, const Message& message, int64_t took_ns,
               int64_t answer_since_ns, const std::string& peer) {
  if (!slow->IsSlow(took_ns) || !slow->TakeLine(kind)) return;
  AnsweredRequest request = message.Describe();
  request.kind = kind;
  request.took_ns = took_ns;
  request.answer_ns = message.stages.NowNs() - answer_since_ns;
  request.peer = peer;
  slow->Log(request);
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_SLOW_REQUESTS_H_
