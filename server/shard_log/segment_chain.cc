#include "server/shard_log/segment_chain.h"

#include <algorithm>
#include <utility>

namespace hotbed {

void SegmentChain::AddBytes(uint64_t bytes, uint32_t crc) {
  Segment& newest = segments_.back();
  newest.bytes += bytes;
  newest.last_crc = crc;
  bytes_ += bytes;
}

void SegmentChain::SetLeastNeeded(ShardId shard, Lsn lsn) {
  Lsn& least = least_needed_[shard];
  least = std::max(least, lsn);
}

void SegmentChain::Forget(ShardId shard) {
  least_needed_.erase(shard);
  aside_.erase(shard);
  for (Segment& segment : segments_) segment.lsn_max.erase(shard);
}

void SegmentChain::Inherit(ShardId parent, ShardId child) {
  for (Segment& segment : segments_) {
    const auto found = segment.lsn_max.find(parent);
    if (found != segment.lsn_max.end()) segment.Add(child, Lsn{found->second});
  }
  const auto least = least_needed_.find(parent);
  if (least != least_needed_.end()) SetLeastNeeded(child, Lsn{least->second});
}

bool SegmentChain::Needs(ShardId shard, Lsn lsn_max) const {
  const auto found = least_needed_.find(shard);
  return found == least_needed_.end() || lsn_max >= found->second;
}

uint64_t SegmentChain::BytesAside() const {
  if (aside_.empty()) return 0;
  uint64_t bytes = 0;
  for (const Segment& segment : segments_) {
    if (&segment == &segments_.back()) break;
    for (const auto& [shard, max] : segment.lsn_max) {
      if (Needs(shard, max) && !aside_.contains(shard)) return bytes;
    }
    bytes += segment.bytes;
  }
  return bytes;
}

std::optional<ShardId> SegmentChain::OldestBlocker() const {
  if (segments_.empty()) return std::nullopt;
  const auto& lsn_max = segments_.front().lsn_max;
  // The last blocker usually still is one, which avoids a walk over all shards in every call.
  if (blocker_.has_value()) {
    const auto found = lsn_max.find(*blocker_);
    if (found != lsn_max.end() && Needs(found->first, found->second)) return blocker_;
  }
  blocker_.reset();
  for (const auto& [shard, max] : lsn_max) {
    if (Needs(shard, max)) {
      blocker_ = shard;
      break;
    }
  }
  return blocker_;
}

std::vector<std::string> SegmentChain::TakeUnneeded() {
  std::vector<std::string> paths;
  while (segments_.size() > 1 && !OldestBlocker().has_value()) {
    bytes_ -= segments_.front().bytes;
    paths.push_back(std::move(segments_.front().path));
    segments_.pop_front();
  }
  return paths;
}

bool SegmentChain::MayShrink() const {
  if (segments_.size() <= 1) return false;
  const std::optional<ShardId> blocker = OldestBlocker();
  return !blocker.has_value() || aside_.contains(*blocker);
}

std::vector<Segment> SegmentChain::TakeEmptied() {
  std::vector<Segment> emptied;
  if (aside_.empty() || !OldestBlocker().has_value()) return emptied;
  for (size_t i = 1; i + 1 < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    if (segment.damaged || segment.bytes <= kSegmentHeaderBytes) continue;
    const bool needed =
        std::any_of(segment.lsn_max.begin(), segment.lsn_max.end(),
                    [this](const auto& entry) { return Needs(entry.first, entry.second); });
    if (needed) continue;
    bytes_ -= segment.bytes - kSegmentHeaderBytes;
    segment.bytes = kSegmentHeaderBytes;
    segment.lsn_max.clear();
    emptied.push_back(segment);
  }
  return emptied;
}

}  // namespace hotbed
