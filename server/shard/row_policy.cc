#include "server/shard/row_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/numeric/int128.h"
#include "row_math/half.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

uint64_t KeyFrom(uint32_t high, uint64_t low) {
  return uint64_t{high} << 32 | std::min<uint64_t>(low, ~uint32_t{0});
}

float WeightAt(const uint8_t* weights, WeightType type, uint32_t column) {
  if (type == WeightType::kFp32) {
    float wide;
    std::memcpy(&wide, weights + 4ull * column, sizeof(wide));
    return wide;
  }
  uint16_t half;
  std::memcpy(&half, weights + 2ull * column, sizeof(half));
  return type == WeightType::kFp16 ? Fp16ToFloat(half) : Bf16ToFloat(half);
}

}  // namespace

RowRecord RecordAt(const OptimizerParams& params, const uint8_t* touches) {
  RowRecord row = {LoadTouches(touches), {}};
  if (params.shows.kept) row.shows = LoadShows(touches - kShowBytes);
  return row;
}

float RowPolicy::ScoreOf(const RowRecord& row, const Moment& now) const {
  const RowShows faded =
      DecayShows(table_.optimizer.shows, row.shows, row.touches.time_s, now.time_s);
  const float score =
      (faded.shows - faded.clicks) * life_.score.show + faded.clicks * life_.score.click;
  return std::max(0.0f, score);
}

bool RowPolicy::Expired(const RowRecord& record, const Moment& now) const {
  const RowTouches& row = record.touches;
  const bool late = life_.ttl_s != 0 && row.time_s != 0 && now.time_s > row.time_s &&
                    now.time_s - row.time_s > life_.ttl_s;
  const bool low =
      life_.score.least > 0 && row.time_s != 0 && ScoreOf(record, now) < life_.score.least;
  return late || low ||
         (life_.ttl_steps != 0 && row.step != 0 && now.step > row.step &&
          now.step - row.step > life_.ttl_steps);
}

uint64_t RowPolicy::KeyOf(const RowRecord& record, const uint8_t* weights,
                          const Moment& now) const {
  const RowTouches& row = record.touches;
  switch (life_.evict_by) {
    case EvictBy::kLru:
      return KeyFrom(row.time_s, row.step);
    case EvictBy::kLfu:
      return KeyFrom(row.count, row.step);
    case EvictBy::kScore:
      return KeyFrom(std::bit_cast<uint32_t>(ScoreOf(record, now)), row.step);
    case EvictBy::kNorm: {
      double square = 0;
      for (uint32_t i = 0; i < table_.dim; ++i) {
        const double w = WeightAt(weights, table_.weight_type, i);
        square += w * w;
      }
      // Floats that are not negative are ordered as their bits.
      return KeyFrom(std::bit_cast<uint32_t>(static_cast<float>(std::sqrt(square))), row.step);
    }
  }
  return 0;
}

uint64_t RowsMaxOf(const TableSpec& table, const ShardRange& range) {
  const uint64_t most = RowsMaxOf(table);
  if (most == 0) return 0;
  const absl::uint128 part = absl::uint128(most) * (range.limit - range.first) / kBuckets;
  return std::max<uint64_t>(1, absl::Uint128Low64(part));
}

void KeySample::Offer(uint64_t key) {
  ++offered_;
  if (keys_.size() < kKeysMax) return keys_.push_back(key);
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const uint64_t at = random_ % offered_;
  if (at < kKeysMax) keys_[at] = key;
}

uint64_t KeySample::Threshold(uint64_t count) {
  if (keys_.empty() || count == 0) return 0;
  const absl::uint128 rank = absl::uint128(count) * keys_.size() / std::max<uint64_t>(1, offered_);
  const size_t at = std::min<size_t>(keys_.size() - 1, absl::Uint128Low64(rank));
  std::nth_element(keys_.begin(), keys_.begin() + at, keys_.end());
  return keys_[at];
}

}  // namespace hotbed
