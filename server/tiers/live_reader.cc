#include "server/tiers/live_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/byte_order.h"
#include "common/status_macros.h"
#include "server/tiers/spill_record.h"

namespace hotbed {
namespace {

LivePass InOrder(LivePass pass) {
  std::vector<uint64_t>& positions = pass.positions;
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return pass;
}

}  // namespace

LiveReader::LiveReader(const SpillShard& shard, LivePass pass, std::shared_ptr<KvStore> store)
    : shard_(shard),
      pass_(InOrder(std::move(pass))),
      store_(std::move(store)),
      bytes_total_(std::max(store_->EstimateBytes(View(FirstRowKey(shard)), RowKeyLimit(shard)),
                            pass_.positions.size() * shard.record_bytes())),
      cursor_(shard.first_position) {}

absl::StatusOr<std::string> LiveReader::Next(uint64_t bytes_max) {
  RowBlockWriter block(shard_.record_bytes());
  while (!at_end_ && block.rows() == 0) {
    HOTBED_RETURN_IF_ERROR(ReadWindow(bytes_max, &block));
  }
  return block.rows() == 0 ? std::string() : block.Finish();
}

bool LiveReader::HasRoom(const RowBlockWriter& block, uint64_t bytes_max) const {
  return block.rows() == 0 || block.bytes() + shard_.record_bytes() <= bytes_max;
}

absl::Status LiveReader::ReadWindow(uint64_t bytes_max, RowBlockWriter* block) {
  const size_t left = pass_.positions.size() - next_;
  const size_t count =
      std::min<size_t>(left, std::max<uint64_t>(1, bytes_max / shard_.record_bytes()));
  const bool last = count == left;
  Window window;
  window.positions = absl::MakeConstSpan(pass_.positions).subspan(next_, count);
  HOTBED_RETURN_IF_ERROR(pass_.read(window.positions, &window.rows));
  const std::string limit =
      last ? RowKeyLimit(shard_) : After(SpillRowKey(shard_, window.positions.back()));
  bool full = false;
  if (!window.rows.all) {
    HOTBED_RETURN_IF_ERROR(AddFromSpill(&window, limit, bytes_max, block, &full));
  }
  full = full || !AddFromMemory(&window, std::numeric_limits<uint64_t>::max(), bytes_max, block);
  if (full) {  // cursor_ says where it goes on
    const auto at = std::lower_bound(window.positions.begin(), window.positions.end(), cursor_);
    next_ += static_cast<size_t>(at - window.positions.begin());
    return absl::OkStatus();
  }
  next_ += count;
  at_end_ = last;
  if (!last) cursor_ = window.positions.back() + 1;
  return absl::OkStatus();
}

// Rows of memory up to position `limit`; false: the block is full, cursor_ is at the next one.
bool LiveReader::AddFromMemory(Window* window, uint64_t limit, uint64_t bytes_max,
                               RowBlockWriter* block) {
  for (size_t& k = window->done; k < window->positions.size(); ++k) {
    const uint64_t position = window->positions[k];
    if (position > limit) break;
    if (!window->rows.found[k]) continue;
    if (!HasRoom(*block, bytes_max)) {
      cursor_ = position;
      return false;
    }
    uint8_t* const record = window->rows.records.data() + k * shard_.record_bytes();
    CompleteRecord(shard_, SpillRowKey(shard_, position), SpillTier::LsnOf(record), record);
    block->Add(position, {reinterpret_cast<const char*>(record), shard_.record_bytes()});
  }
  return true;
}

// And those of memory that stand before them.
absl::Status LiveReader::AddFromSpill(Window* window, absl::string_view limit, uint64_t bytes_max,
                                      RowBlockWriter* block, bool* full) {
  absl::Status damage;
  const auto visit = [&](absl::string_view key, absl::string_view value) {
    const uint64_t position = LoadBig64(key.data() + kSpillKeyBytes - 8);
    const size_t done = window->done;
    *full = !AddFromMemory(window, position, bytes_max, block);
    if (*full) return false;
    for (size_t k = done; k < window->done; ++k) {
      if (window->positions[k] == position && window->rows.found[k]) return true;
    }
    SpillKey at;
    std::memcpy(at.data(), key.data(), at.size());
    damage = CheckRecord(shard_, position, at, value);
    if (!damage.ok()) return false;
    const Lsn lsn = SpillTier::LsnOf(reinterpret_cast<const uint8_t*>(value.data()));
    if (pass_.above != 0 && lsn <= pass_.above) return true;
    *full = !HasRoom(*block, bytes_max);
    if (*full) {
      cursor_ = position;
    } else {
      block->Add(position, value);
    }
    return !*full;
  };
  const absl::Status scanned = store_->Scan(View(SpillRowKey(shard_, cursor_)), limit, visit);
  if (!damage.ok()) return damage;
  if (scanned.ok()) return absl::OkStatus();
  return absl::Status(scanned.code(),
                      absl::StrCat(shard_.shard.ToString(), ": ", scanned.message()));
}

}  // namespace hotbed
