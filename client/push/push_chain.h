// The order of one session's pushes to one shard (docs/protocol.md). A pure state machine.
//
// Every part that was sent and not answered stays here, in order. `prev_seq` names the part that
// was sent before, so that the shard refuses a part that follows a lost one with GAP. Recovery is
// go-back-n: after a refusal or a lost stream the chain is stalled until every part in flight has
// been answered or lost. All unanswered parts are then sent again, in order, chained from the last
// sequence number that the shard is known to have. A part that was applied after all is answered as
// a duplicate. Thread-compatible.
#ifndef HOTBED_CLIENT_PUSH_PUSH_CHAIN_H_
#define HOTBED_CLIENT_PUSH_PUSH_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/container/inlined_vector.h"

namespace hotbed {

inline constexpr int kPartBits = 20;
inline constexpr uint64_t kPartsPerStepMax =
    (1ull << kPartBits) - 1;  // part 0 is not used: sequence 0 means "none"
inline constexpr uint64_t kStepMax = (1ull << (64 - kPartBits)) - 1;

constexpr uint64_t SequenceOf(uint64_t step, uint64_t part) { return step << kPartBits | part; }

// A part as the chain sees it; the owner derives from it.
struct ChainedPart {
  uint64_t seq = 0;        // identifies the part: the number of its last rows
  uint64_t first_seq = 0;  // the number of its first rows
  bool in_flight = false;
  bool done = false;  // answered for good: it has left the chain
};

class PushChain {
 public:
  // `part->seq` is above that of every part before it.
  void Append(ChainedPart* part);

  // The next part to send, or null: nothing to send, or stalled.
  ChainedPart* NextToSend() const {
    return stalled_ || sent_ == parts_.size() ? nullptr : parts_[sent_];
  }
  struct Stamp {
    uint64_t prev_seq = 0;
    bool open = false;
  };
  // Marks NextToSend() as sent.
  Stamp Send();

  // --- The answers to a part in flight. `last_seq` is the shard's last number of the session.
  //
  // Applied, now or earlier.
  void OnApplied(ChainedPart* part, uint64_t last_seq);
  // Refused for good. The shard logged a noop if `last_seq` has reached the part.
  void OnRefused(ChainedPart* part, uint64_t last_seq);
  // Lost, or refused for now: the part stays, and the chain stalls.
  void OnRetry(ChainedPart* part);
  void OnGap(ChainedPart* part, uint64_t last_seq);
  void OnUnknownSession(ChainedPart* part);

  // Once the chain is stalled and drained, Restart lets NextToSend begin with the oldest part.
  bool stalled() const { return stalled_; }
  bool ReadyToRestart() const { return stalled_ && in_flight_ == 0; }
  void Restart();

  // --- The shard was cut, and nothing is in flight.
  // All parts, which leave the chain; it goes on where the shard is known to be.
  std::deque<ChainedPart*> TakeParts();
  // Goes on where `from` is, whose shard this one was cut from, with `parts` before its own.
  void Inherit(const PushChain& from, const std::deque<ChainedPart*>& parts);

  size_t in_flight() const { return in_flight_; }
  // The last sequence number of the session that the shard is known to have.
  uint64_t known_seq() const { return known_seq_; }
  bool empty() const { return parts_.empty(); }
  // Restarts since a part was last applied, for the back-off.
  int attempts() const { return attempts_; }

 private:
  void Answered(ChainedPart* part);
  void Remove(ChainedPart* part);

  absl::InlinedVector<ChainedPart*, 4> parts_;
  size_t sent_ = 0;  // of parts_, since the last restart
  size_t in_flight_ = 0;
  uint64_t tail_seq_ = 0;   // prev_seq of the next part
  uint64_t last_seq_ = 0;   // of the newest of parts_
  uint64_t known_seq_ = 0;  // the shard's last sequence number of the session, by its answers
  bool opened_ = false;     // the shard has accepted this incarnation
  bool stalled_ = false;
  int attempts_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_CHAIN_H_
