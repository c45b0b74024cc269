// The window of pushes in flight: as many as the client's limits allow, and no more than are likely
// to be answered in time. Thread-compatible.
//
// Where servers process less than their clients send, the difference must wait somewhere. If it
// waits in flight, each push takes as long as all pushes before it, and once that exceeds the
// deadlines every push is answered too late: the server works at full speed for nothing. So it
// waits at the client, where a push that is not sent by its deadline has changed nothing.
//
// The time per push is estimated: the time from entering the window to the answer, divided by the
// number of pushes in flight, as a moving average. Many clients share a server, and each measures
// the share that is left to it.
#ifndef HOTBED_CLIENT_PUSH_PUSH_WINDOW_H_
#define HOTBED_CLIENT_PUSH_PUSH_WINDOW_H_

#include <cstdint>
#include <string>

namespace hotbed {

class PushWindow {
 public:
  // One push in flight.
  struct Entry {
    uint64_t bytes = 0;
    int64_t begun_ns = 0;
    uint64_t before = 0;  // pushes in flight when it began
  };

  PushWindow(uint64_t pushes_max, uint64_t bytes_max)
      : pushes_max_(pushes_max), bytes_max_(bytes_max) {}

  // Whether the window admits a push of `bytes` bytes that has `left_ns` until its deadline. An
  // empty window admits every push.
  bool Admits(uint64_t bytes, int64_t left_ns) const;
  Entry Enter(uint64_t bytes, int64_t now_ns);
  // All shards have answered the push, whatever the answers are.
  void Leave(const Entry& entry, int64_t now_ns);

  // How long a push that began now would take, in nanoseconds.
  int64_t ExpectedNs() const {
    return static_cast<int64_t>(ns_per_push_ * static_cast<double>(pushes_ + 1));
  }
  // The state of the window, for an error message.
  std::string ToString() const;

 private:
  const uint64_t pushes_max_;
  const uint64_t bytes_max_;
  uint64_t pushes_ = 0;
  uint64_t bytes_ = 0;
  double ns_per_push_ = 0;  // 0: no push was answered yet
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_WINDOW_H_
