#include "server/tiers/spill/spill_fetch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hotbed {
namespace {

// Rows per part: enough for RocksDB to batch, few enough to spread a message with many misses over
// the threads.
constexpr size_t kPartRows = 256;

}  // namespace

void SpillFetch::Start(const SpillShard& shard, const Wiring& wiring,
                       absl::Span<const uint32_t> picks, const std::vector<uint64_t>& positions,
                       const std::function<void(std::shared_ptr<SpillFetch>)>& done) {
  auto fetch = std::make_shared<SpillFetch>();
  const size_t parts = (picks.size() + kPartRows - 1) / kPartRows;
  fetch->parts_.resize(parts);
  fetch->open_parts_.store(static_cast<int>(parts), std::memory_order_relaxed);
  for (size_t p = 0; p < parts; ++p) {
    Part& part = fetch->parts_[p];
    const size_t first = p * kPartRows;
    const size_t limit = std::min(picks.size(), first + kPartRows);
    part.picks.assign(picks.begin() + first, picks.begin() + limit);
    part.positions.assign(positions.begin() + first, positions.begin() + limit);
  }
  for (size_t p = 0; p < parts; ++p) {
    wiring.io->Submit([shard, wiring, fetch, p, done] {
      if (!wiring.gate->Enter()) return;
      ReadPart(shard, wiring.spill, &fetch->parts_[p]);
      if (fetch->open_parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        wiring.executor->Run([fetch, done] { done(fetch); });
      }
      wiring.gate->Leave();
    });
  }
}

void SpillFetch::ReadPart(const SpillShard& shard, SpillTier* spill, Part* part) {
  std::vector<uint32_t> order(part->picks.size());
  std::iota(order.begin(), order.end(), 0u);
  const std::vector<uint64_t> given = std::move(part->positions);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return given[a] < given[b]; });
  std::vector<uint32_t> picks(order.size());
  part->row_of.resize(order.size());
  part->positions.clear();
  for (size_t k = 0; k < order.size(); ++k) {
    picks[k] = part->picks[order[k]];
    if (part->positions.empty() || part->positions.back() != given[order[k]]) {
      part->positions.push_back(given[order[k]]);
    }
    part->row_of[k] = static_cast<uint32_t>(part->positions.size() - 1);
  }
  part->picks = std::move(picks);
  part->records.resize(part->positions.size() * shard.record_bytes());
  part->found.resize(part->positions.size());
  part->status = spill->Fetch(shard, part->positions, part->records.data(), part->found.data());
}

absl::Status SpillFetch::status() const {
  for (const Part& part : parts_) {
    if (!part.status.ok()) return part.status;
  }
  return absl::OkStatus();
}

}  // namespace hotbed
