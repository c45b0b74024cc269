#include "client/push/push_chain.h"

#include <algorithm>
#include <vector>

#include "common/check.h"

namespace hotbed {

void PushChain::Append(ChainedPart* part) {
  HOTBED_CHECK(parts_.empty() || part->seq > last_seq_)
      << "sequence " << part->seq << " after " << last_seq_;
  last_seq_ = part->seq;
  parts_.push_back(part);
}

PushChain::Stamp PushChain::Send() {
  ChainedPart* const part = NextToSend();
  HOTBED_CHECK(part != nullptr) << "a push chain has nothing to send";
  // Every part says `open` until one is answered: the client does not know which arrives first.
  const Stamp stamp{tail_seq_, !opened_};
  part->in_flight = true;
  tail_seq_ = part->seq;
  ++sent_;
  ++in_flight_;
  return stamp;
}

void PushChain::Answered(ChainedPart* part) {
  HOTBED_CHECK(part->in_flight) << "an answer to a part that is not in flight, sequence "
                                << part->seq;
  part->in_flight = false;
  --in_flight_;
}

void PushChain::Remove(ChainedPart* part) {
  part->done = true;
  // In flight means sent since the last restart; usually it is the oldest.
  const auto it = std::find(parts_.begin(), parts_.begin() + static_cast<ptrdiff_t>(sent_), part);
  parts_.erase(it);
  --sent_;
}

void PushChain::OnApplied(ChainedPart* part, uint64_t last_seq) {
  Answered(part);
  Remove(part);
  opened_ = true;
  attempts_ = 0;
  known_seq_ = std::max({known_seq_, part->seq, last_seq});
}

void PushChain::OnRefused(ChainedPart* part, uint64_t last_seq) {
  Answered(part);
  Remove(part);
  if (last_seq >= part->seq) opened_ = true;
  known_seq_ = std::max(known_seq_, last_seq);
}

void PushChain::OnRetry(ChainedPart* part) {
  Answered(part);
  stalled_ = true;
}

void PushChain::OnGap(ChainedPart* part, uint64_t last_seq) {
  Answered(part);
  stalled_ = true;
  // May be lower than an acknowledged number: a killed shard of durability `checkpoint` forgets.
  known_seq_ = last_seq;
}

void PushChain::OnUnknownSession(ChainedPart* part) {
  Answered(part);
  stalled_ = true;
  opened_ = false;
  known_seq_ = 0;
}

std::deque<ChainedPart*> PushChain::TakeParts() {
  HOTBED_CHECK(in_flight_ == 0) << in_flight_ << " parts are still in flight";
  stalled_ = false;
  sent_ = 0;
  tail_seq_ = known_seq_;
  std::deque<ChainedPart*> parts(parts_.begin(), parts_.end());
  parts_.clear();
  return parts;
}

void PushChain::Inherit(const PushChain& from, const std::deque<ChainedPart*>& parts) {
  HOTBED_CHECK(in_flight_ == 0 && sent_ == 0) << in_flight_ << " parts are in flight already";
  known_seq_ = from.known_seq_;
  tail_seq_ = from.known_seq_;
  opened_ = from.opened_;
  attempts_ = from.attempts_;
  const std::vector<ChainedPart*> own(parts_.begin(), parts_.end());
  parts_.clear();
  for (ChainedPart* part : parts) Append(part);
  for (ChainedPart* part : own) Append(part);
}

void PushChain::Restart() {
  HOTBED_CHECK(ReadyToRestart()) << in_flight_ << " parts are still in flight";
  stalled_ = false;
  sent_ = 0;
  tail_seq_ = known_seq_;
  ++attempts_;
}

}  // namespace hotbed
