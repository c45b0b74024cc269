#include "serving/kept_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kFlushNs = 10 * kSecondNs;
constexpr char kKind[] = "rows, 1";
// How the positions on disk begin.
constexpr char kWhole = 'w';
constexpr char kPartly = 'p';  // while rows come at first, or again

static_assert(std::is_trivially_copyable_v<RangePosition>);

}  // namespace

absl::StatusOr<std::unique_ptr<KeptRows>> KeptRows::Open(const std::string& dir,
                                                         const ServedPlaces& places,
                                                         uint32_t row_bytes,
                                                         const std::string& cluster,
                                                         const std::function<bool()>& stops) {
  HOTBED_ASSIGN_OR_RETURN(
      std::unique_ptr<DiskRows> rows,
      DiskRows::Open(dir, row_bytes, absl::StrCat(kKind, ", ", cluster), stops));
  return std::unique_ptr<KeptRows>(new KeptRows(places, std::move(rows)));
}

ChangePositions KeptRows::Positions() const {
  const std::string& kept = rows_->position();
  if (kept.empty() || kept[0] != kWhole) return {};
  ChangePositions positions((kept.size() - 1) / sizeof(RangePosition));
  std::memcpy(positions.data(), kept.data() + 1, positions.size() * sizeof(RangePosition));
  return positions;
}

absl::Status KeptRows::BeginStream() {
  again_.clear();
  whole_ = !Positions().empty();
  return rows_->TryResume();
}

absl::Status KeptRows::BeginAgain(const ChangedRange& range, const ChangePositions& positions) {
  HOTBED_ASSIGN_OR_RETURN(const uint32_t age, rows_->BeginAge());
  again_.push_back({range, age});
  whole_ = false;
  return Commit(positions);
}

absl::Status KeptRows::Commit(const ChangePositions& positions) {
  std::string kept(1 + positions.size() * sizeof(RangePosition), whole_ ? kWhole : kPartly);
  std::memcpy(kept.data() + 1, positions.data(), positions.size() * sizeof(RangePosition));
  return rows_->Commit(kept);
}

uint32_t KeptRows::LeastAge(uint64_t id) const {
  uint32_t least = 0;
  const uint64_t place = places_.PlaceOf(id);
  for (const Again& again : again_) {
    if (place >= again.range.first && place < again.range.limit) least = std::max(least, again.age);
  }
  return least;
}

absl::Status KeptRows::EndAgain(const ChangePositions& positions) {
  if (whole_) return absl::OkStatus();
  if (!again_.empty()) {
    HOTBED_RETURN_IF_ERROR(
        rows_->DeleteOlder([this](uint64_t id) { return LeastAge(id); }).status());
    again_.clear();
  }
  whole_ = true;
  return Commit(positions);
}

absl::Status KeptRows::FlushIfDue(int64_t now_ns) {
  if (now_ns - flushed_ns_ < kFlushNs) return absl::OkStatus();
  flushed_ns_ = now_ns;
  return rows_->Flush();
}

}  // namespace hotbed
