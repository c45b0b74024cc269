#include "server/tiers/spill/live_reader.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/status_macros.h"
#include "server/tiers/spill/row_journal.h"
#include "server/tiers/spill/spill_record.h"
#include "server/tiers/spill/spill_snapshot.h"

namespace hotbed {
namespace {

// Rows read in one task of the shard, which delays requests by a fraction of a millisecond.
constexpr size_t kWindowRowsMax = 2048;
constexpr size_t kWindowRowsMin = 64;

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
      snapshot_(pass_.at_once ? store_->TakeSnapshot() : nullptr),
      reads_(snapshot_ == nullptr ? static_cast<KvReads*>(store_.get()) : snapshot_.get()),
      bytes_total_(std::max(store_->EstimateBytes(View(FirstRowKey(shard)), RowKeyLimit(shard)),
                            pass_.positions.size() * shard.record_bytes())),
      window_rows_(kWindowRowsMax),
      cursor_(shard.first_position) {}

absl::StatusOr<std::string> LiveReader::Next(uint64_t bytes_max) {
  // A row that has changed and left memory since the pass began is one of pass_.positions.
  if (pass_.above != 0 && !asked_journal_) {
    HOTBED_ASSIGN_OR_RETURN(journal_,
                            RowJournals::Above(shard_, pass_.above, shard_.first_position,
                                               std::numeric_limits<uint64_t>::max(), reads_));
    asked_journal_ = true;
  }
  RowBlockWriter block(shard_.record_bytes(), sealed_);
  for (bool full = false; !full && !at_end_;) {
    HOTBED_RETURN_IF_ERROR(ReadWindow(bytes_max, &block, &full));
  }
  return block.rows() == 0 ? std::string() : block.Finish();
}

uint64_t LiveReader::RoomOf(const RowBlockWriter& block, uint64_t bytes_max) const {
  const uint64_t left = bytes_max - std::min(bytes_max, block.bytes());
  const uint64_t rows = left / (kRowBlockPositionBytes + shard_.record_bytes());
  return block.rows() == 0 ? std::max<uint64_t>(1, rows) : rows;
}

absl::Status LiveReader::ReadWindow(uint64_t bytes_max, RowBlockWriter* block, bool* full) {
  const size_t left = pass_.positions.size() - next_;
  const uint64_t room = RoomOf(*block, bytes_max);
  *full = room == 0;
  if (*full) return absl::OkStatus();
  const size_t count = std::min<uint64_t>({left, room, window_rows_});
  const bool last = count == left;
  Window& window = window_;
  window.positions = absl::MakeConstSpan(pass_.positions).subspan(next_, count);
  window.done = 0;
  HOTBED_RETURN_IF_ERROR(pass_.read(window.positions, &window.rows));
  if (!window.rows.all) {
    HOTBED_RETURN_IF_ERROR(AddFromSpill(
        &window, last ? shard_.last_position : window.positions.back(), bytes_max, block, full));
  }
  *full = *full || !AddFromMemory(&window, std::numeric_limits<uint64_t>::max(), bytes_max, block);
  if (*full) {  // the next block continues at cursor_
    const auto at = std::lower_bound(window.positions.begin(), window.positions.end(), cursor_);
    const size_t used = static_cast<size_t>(at - window.positions.begin());
    next_ += used;
    window_rows_ = std::max(kWindowRowsMin, 2 * used);
    return absl::OkStatus();
  }
  next_ += count;
  at_end_ = last;
  window_rows_ = std::min(kWindowRowsMax, 2 * window_rows_);
  if (!last) cursor_ = window.positions.back() + 1;
  return absl::OkStatus();
}

// Adds rows of memory up to position `limit`. False: the block is full, cursor_ is at the next row.
bool LiveReader::AddFromMemory(Window* window, uint64_t limit, uint64_t bytes_max,
                               RowBlockWriter* block) {
  for (size_t& k = window->done; k < window->positions.size(); ++k) {
    const uint64_t position = window->positions[k];
    if (position > limit) break;
    if (!window->rows.found[k]) continue;
    if (RoomOf(*block, bytes_max) == 0) {
      cursor_ = position;
      return false;
    }
    uint8_t* const record = window->rows.records.data() + k * shard_.record_bytes();
    if (sealed_) {
      CompleteRecord(shard_, SpillRowKey(shard_, position), SpillTier::LsnOf(record),
                     IsDeleted(record), record);
    }
    block->Add(position, {reinterpret_cast<const char*>(record), shard_.record_bytes()});
  }
  return true;
}

// Adds rows of the spill tier, and before each the rows of memory with lower positions.
absl::Status LiveReader::AddFromSpill(Window* window, uint64_t last, uint64_t bytes_max,
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
    *full = RoomOf(*block, bytes_max) == 0;
    if (*full) {
      cursor_ = position;
    } else {
      block->Add(position, value);
    }
    return !*full;
  };
  const absl::Status scanned = VisitSpill(*window, last, visit);
  if (!damage.ok()) return damage;
  if (scanned.ok()) return absl::OkStatus();
  return absl::Status(scanned.code(),
                      absl::StrCat(shard_.shard.ToString(), ": ", scanned.message()));
}

absl::Status LiveReader::VisitSpill(
    const Window& window, uint64_t last,
    absl::FunctionRef<bool(absl::string_view key, absl::string_view record)> visit) {
  if (!journal_.has_value()) {
    return reads_->Scan(View(SpillRowKey(shard_, cursor_)), After(SpillRowKey(shard_, last)),
                        visit);
  }
  std::vector<uint64_t> left;  // memory did not hold them
  for (size_t k = 0; k < window.positions.size(); ++k) {
    if (!window.rows.found[k] && window.positions[k] >= cursor_)
      left.push_back(window.positions[k]);
  }
  std::vector<uint64_t> wanted;
  std::set_union(
      left.begin(), left.end(), std::lower_bound(journal_->begin(), journal_->end(), cursor_),
      std::upper_bound(journal_->begin(), journal_->end(), last), std::back_inserter(wanted));
  return VisitRowsAt(shard_, wanted, reads_, visit);
}

}  // namespace hotbed
