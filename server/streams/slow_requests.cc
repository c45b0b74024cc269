#include "server/streams/slow_requests.h"

#include <algorithm>
#include <ctime>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/traceparent.h"
#include "server/net/stream_metrics.h"

namespace hotbed {
namespace {

constexpr size_t kSegmentsShown = 16;  // of a line

class MillisecondClock final : public Clock {
 public:
  int64_t NowNs() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * kSecondNs + now.tv_nsec;
  }
  int64_t WallUs() const override { return Clock::Real()->WallUs(); }
  void SleepNs(int64_t ns) const override { Clock::Real()->SleepNs(ns); }
};

const char* NameOf(RequestKind kind) {
  switch (kind) {
    case RequestKind::kPull:
      return "pull";
    case RequestKind::kPush:
      return "push";
    case RequestKind::kLookup:
      return "lookup";
  }
  return "?";
}

// "table user, shards 0 1; table item, shards 5".
std::string SegmentsText(const std::vector<AnsweredRequest::Segment>& segments) {
  if (segments.empty()) return "no shard";
  std::string text;
  const std::string* table = nullptr;
  for (size_t i = 0; i < std::min(segments.size(), kSegmentsShown); ++i) {
    if (table == nullptr || *table != segments[i].table) {
      absl::StrAppend(&text, table == nullptr ? "" : "; ", "table ", segments[i].table, ", shards");
      table = &segments[i].table;
    }
    absl::StrAppend(&text, " ", segments[i].index);
  }
  if (segments.size() > kSegmentsShown) {
    absl::StrAppend(&text, " and ", segments.size() - kSegmentsShown, " more");
  }
  return text;
}

std::string StageText(const AnsweredRequest& request, RequestStages::Stage stage,
                      const char* name) {
  const RequestStages::Longest longest = request.stages->of(stage);
  std::string text = absl::StrCat(name, " ", longest.ns / kMillisecondNs, " ms");
  if (longest.ns >= kMillisecondNs && longest.segment < request.segments.size() &&
      stage != RequestStages::kMemory) {
    const AnsweredRequest::Segment& segment = request.segments[longest.segment];
    absl::StrAppend(&text, " (", segment.table, "/", segment.index, ")");
  }
  return text;
}

}  // namespace

void RequestTraces::TakeValid(const google::protobuf::RepeatedPtrField<std::string>& traceparents) {
  const auto given = static_cast<size_t>(traceparents.size());
  const size_t ignored = given - std::min(given, kTracesMax);
  for (size_t i = 0; i < given - ignored; ++i) {
    const std::string& traceparent = traceparents[static_cast<int>(i)];
    if (CheckTraceparent(traceparent).ok()) {
      traces_.emplace_back(TraceIdOf(traceparent));
    } else {
      StreamMetrics::Get().traceparents_ignored.Add(1);
    }
  }
  if (ignored > 0) StreamMetrics::Get().traceparents_ignored.Add(ignored);
}

std::string SlowRequestText(const AnsweredRequest& request) {
  std::string text =
      absl::StrCat("slow ", NameOf(request.kind), " of ", request.took_ns / kMillisecondNs,
                   " ms: ", SegmentsText(request.segments), "; ", request.rows, " rows, ",
                   request.request_bytes, " bytes in, ", request.answer_bytes,
                   " bytes of rows out; ", StageText(request, RequestStages::kMemory, "memory"),
                   ", ", StageText(request, RequestStages::kStrand, "strand"), ", ",
                   StageText(request, RequestStages::kState, "state"), ", ");
  if (request.kind == RequestKind::kPush) {
    absl::StrAppend(&text, StageText(request, RequestStages::kLog, "log"), ", ",
                    StageText(request, RequestStages::kReplicas, "replicas"), ", ");
  }
  absl::StrAppend(&text, StageText(request, RequestStages::kRows, "rows"), ", answer ",
                  request.answer_ns / kMillisecondNs, " ms; from ", request.peer);
  if (request.traces != nullptr && !request.traces->traces().empty()) {
    absl::StrAppend(&text, "; trace ", absl::StrJoin(request.traces->traces(), " "));
  }
  return text;
}

bool SlowRequests::TakeLine(RequestKind kind) {
  StreamMetrics::Get().slow_requests[static_cast<size_t>(kind)]->Add(1);
  const int64_t second = clock_->NowNs() / kSecondNs;
  if (second_.exchange(second, std::memory_order_relaxed) != second) lines_.store(0);
  if (lines_.fetch_add(1, std::memory_order_relaxed) < kLinesPerS) return true;
  left_out_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void SlowRequests::Log(const AnsweredRequest& request) {
  const uint64_t left_out = left_out_.exchange(0);
  const std::string before =
      left_out == 0 ? "" : absl::StrCat(" (", left_out, " slow requests before it have no line)");
  HOTBED_LOG(Warning) << SlowRequestText(request) << before;
}

const Clock* SlowRequests::CoarseClock() {
  static const MillisecondClock* const clock = new MillisecondClock;
  return clock;
}

}  // namespace hotbed
