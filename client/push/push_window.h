// How many pushes a client keeps on their way: what its limits allow, and no more than are likely
// to be answered in time. Thread-compatible.
//
// Where servers take less than all their clients send, the difference waits somewhere. If it waits
// on the way, each push takes as long as all before it, and once that is longer than deadlines
// everything is answered too late: a server that works at its best for nobody. So it waits at the
// client, where a push that is not sent by its deadline has changed nothing.
//
// What a push takes: its time from here to its answer, spread over those that were on their way
// with it; of the last ones, the newest counting most. Many clients share a server's time, and each
// sees what that leaves to it.
#ifndef HOTBED_CLIENT_PUSH_PUSH_WINDOW_H_
#define HOTBED_CLIENT_PUSH_PUSH_WINDOW_H_

#include <cstdint>
#include <string>

namespace hotbed {

class PushWindow {
 public:
  // Of one push on its way.
  struct Place {
    uint64_t bytes = 0;
    int64_t begun_ns = 0;
    uint64_t before = 0;  // were on their way when it began
  };

  PushWindow(uint64_t pushes_max, uint64_t bytes_max)
      : pushes_max_(pushes_max), bytes_max_(bytes_max) {}

  // For a push of so many bytes that has `left_ns` until its deadline. One that would be alone
  // goes, whatever it weighs and however long the last ones took.
  bool Has(uint64_t bytes, int64_t left_ns) const;
  Place Enter(uint64_t bytes, int64_t now_ns);
  // Answered by all its shards, whatever became of it.
  void Leave(const Place& place, int64_t now_ns);

  // When a push that began now would be answered, from now.
  int64_t ExpectedNs() const {
    return static_cast<int64_t>(ns_per_push_ * static_cast<double>(pushes_ + 1));
  }
  // What stands in the way, for a message.
  std::string ToString() const;

 private:
  const uint64_t pushes_max_;
  const uint64_t bytes_max_;
  uint64_t pushes_ = 0;
  uint64_t bytes_ = 0;
  double ns_per_push_ = 0;  // 0: none was answered yet
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_WINDOW_H_
