// How long the segments of a request were in each stage of their way through the server, for the
// log of slow requests (server/streams/slow_requests.h). A stage has the time of the segment that
// was in it for longest.
//
// The clock is one that costs little and has steps of milliseconds. It is read once when a request
// begins, and at the ends of the stages in which it waits, such as for the log.
#ifndef HOTBED_SERVER_SHARD_REQUEST_REQUEST_STAGES_H_
#define HOTBED_SERVER_SHARD_REQUEST_REQUEST_STAGES_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/clock.h"

namespace hotbed {

class RequestStages {
 public:
  enum Stage : uint8_t {
    kMemory,    // waited for room in a budget of messages in flight
    kStrand,    // waited for the shard, which was busy
    kState,     // waited for the shard to be active, to know the session, or to have the LSN
    kLog,       // appended to the log
    kReplicas,  // acknowledged by the other replicas
    kRows,      // rows read from the spill tier or the device, or updated
  };
  static constexpr size_t kStages = 6;
  struct Longest {
    int64_t ns = 0;
    size_t segment = 0;
  };

  // A new request. Null: nothing is noted.
  void Begin(const Clock* clock) {
    clock_ = clock;
    begun_ns_ = NowNs();
    for (auto& stage : longest_) stage.store(0, std::memory_order_relaxed);
  }
  int64_t begun_ns() const { return begun_ns_; }  // its segments
  bool noted() const { return clock_ != nullptr; }
  // The request as a whole has waited in `stage` since it began; its segments begin now.
  void NoteAll(Stage stage) { begun_ns_ = Note(stage, begun_ns_, 0); }
  // 0 where nothing is noted.
  int64_t NowNs() const { return clock_ == nullptr ? 0 : clock_->NowNs(); }
  // The segment of this number was in `stage` from `since_ns` on. Returns the time. Any thread.
  int64_t Note(Stage stage, int64_t since_ns, size_t segment) {
    if (clock_ == nullptr) return 0;
    const int64_t now_ns = clock_->NowNs();
    const uint64_t ns =
        std::min<uint64_t>(static_cast<uint64_t>(std::max<int64_t>(now_ns - since_ns, 0)), kNsMax);
    const uint64_t noted = ns << kSegmentBits | (segment & kSegmentsMax);
    uint64_t seen = longest_[stage].load(std::memory_order_relaxed);
    while (ns > seen >> kSegmentBits &&
           !longest_[stage].compare_exchange_weak(seen, noted, std::memory_order_relaxed)) {
    }
    return now_ns;
  }
  Longest of(Stage stage) const {
    const uint64_t noted = longest_[stage].load(std::memory_order_relaxed);
    return {static_cast<int64_t>(noted >> kSegmentBits), noted & kSegmentsMax};
  }

 private:
  static constexpr int kSegmentBits = 16;
  static constexpr uint64_t kSegmentsMax = (uint64_t{1} << kSegmentBits) - 1;
  static constexpr uint64_t kNsMax = (uint64_t{1} << (64 - kSegmentBits)) - 1;  // three days

  const Clock* clock_ = nullptr;
  int64_t begun_ns_ = 0;
  // Nanoseconds, and in the lowest bits the number of the segment.
  std::array<std::atomic<uint64_t>, kStages> longest_ = {};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_REQUEST_STAGES_H_
