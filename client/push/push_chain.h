// The order of one session's pushes to one shard (DECISIONS S1; reference page, section 3.6). A
// pure state machine.
//
// Every part that was sent and not answered stays here, in order. `prev_seq` names the part that
// was sent before it, so the shard refuses whatever follows a lost part with GAP. Recovery is
// go-back-n: after a refusal or a lost stream the chain is stalled until every part in flight has
// been answered or lost; then all that is unanswered is sent again, in order, chained from the last
// sequence number that the shard is known to have. What was applied after all is answered as a
// duplicate. Thread-compatible.
#ifndef HOTBED_CLIENT_PUSH_PUSH_CHAIN_H_
#define HOTBED_CLIENT_PUSH_PUSH_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <deque>

namespace hotbed {

inline constexpr int kPartBits = 20;
inline constexpr uint64_t kPartsPerStepMax =
    (1ull << kPartBits) - 1;  // part 0 is not used: sequence 0 means "none"
inline constexpr uint64_t kStepMax = (1ull << (64 - kPartBits)) - 1;

constexpr uint64_t SequenceOf(uint64_t step, uint64_t part) { return step << kPartBits | part; }

// What a chain holds of a part; the owner derives from it.
struct ChainedPart {
  uint64_t seq = 0;        // what it is known by: that of its last rows
  uint64_t first_seq = 0;  // of its first rows
  bool in_flight = false;
  bool done = false;  // answered for good: the chain no longer holds it
};

class PushChain {
 public:
  // `part->seq` is above that of every part before it.
  void Append(ChainedPart* part) { parts_.push_back(part); }

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

  // The answers to a part in flight. Applied, now or earlier:
  void OnApplied(ChainedPart* part, uint64_t last_seq);
  // Refused for good; the shard logged a noop if `last_seq` reached it.
  void OnRefused(ChainedPart* part, uint64_t last_seq);
  // Lost, or refused for now: it stays, the chain stalls.
  void OnRetry(ChainedPart* part);
  void OnGap(ChainedPart* part, uint64_t last_seq);
  void OnUnknownSession(ChainedPart* part);

  // Stalled and drained: Restart lets NextToSend begin with the oldest part.
  bool stalled() const { return stalled_; }
  bool ReadyToRestart() const { return stalled_ && in_flight_ == 0; }
  void Restart();

  // The last sequence number that the shard is known to have of us.
  uint64_t known_seq() const { return known_seq_; }
  bool empty() const { return parts_.empty(); }
  uint64_t size() const { return parts_.size(); }
  // Restarts since the last part that was applied: for the back-off.
  int attempts() const { return attempts_; }

 private:
  void Answered(ChainedPart* part);
  void Remove(ChainedPart* part);

  std::deque<ChainedPart*> parts_;
  size_t sent_ = 0;  // of parts_, since the last restart
  size_t in_flight_ = 0;
  uint64_t tail_seq_ = 0;   // prev_seq of the next part
  uint64_t known_seq_ = 0;  // the shard's last sequence of ours, as far as its answers tell
  bool opened_ = false;     // this incarnation was accepted
  bool stalled_ = false;
  int attempts_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_CHAIN_H_
