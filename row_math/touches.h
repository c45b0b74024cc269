// A row's touches: how often pushes have named it, and when the last one did. They are the last
// kTouchBytes of the row's state where the table keeps them (OptimizerParams::touches):
//
//   u32 number of touches (stays at its largest value), u32 time of the last one in seconds since
//   1970, u64 its step
//
// Both times come with the push (UpdateScalars), as its primary has logged them, so replicas have
// the same bytes. Steps of several trainers come in any order: the last touch is the last one
// logged.
//
// Shows and clicks: how often an item was shown and clicked, as its pushes say. They are the
// kShowBytes before the touches where the table keeps them (OptimizerParams::shows): f32 shows, f32
// clicks, as of the last touch. Each boundary of a period (of time_s / period_s) that passes
// multiplies both by `decay`, as the daily shrink of Paddle's CtrCommonAccessor does
// (show_click_decay_rate); the product is made when the row is next touched, or looked at. The
// score is that accessor's, too: (shows - clicks) * weight of a show + clicks * weight of a click.
//
// Admission: a row whose table asks for `admit_after` touches is a candidate until it has that
// many. A candidate keeps its first value; gradients for it are counted and not applied. With
// AdmitBy::kBloom there are no candidates: a row is made when its id has been touched often enough.
#ifndef HOTBED_ROW_MATH_TOUCHES_H_
#define HOTBED_ROW_MATH_TOUCHES_H_

#include <cstdint>

#include "row_math/types.h"

namespace hotbed {

struct RowTouches {
  uint32_t count = 0;
  uint32_t time_s = 0;
  uint64_t step = 0;
};

struct RowShows {
  float shows = 0.0f;
  float clicks = 0.0f;
};

// Where the touches of ids are counted until they are admitted.
enum class AdmitBy : uint8_t {
  kExact = 0,  // in a row, which takes its place as a candidate
  kBloom =
      1,  // in a counting Bloom filter, and the id has no row (common/tables/touch_filter_shape)
};

// How rows of a hashed table come to be trained.
struct AdmissionParams {
  uint32_t after = 0;  // touches that a row needs; 0 and 1: the first one
  // [0, 1]: the chance of each touch to make a row that is not there.
  float probability = 1.0f;
  bool zeros = false;  // rows that are not admitted read as zeros, not as their first value
  AdmitBy by = AdmitBy::kExact;
  // kBloom: while at most `ids` ids were touched, at most this part of those that were touched
  // fewer than `after` times is admitted. 0 ids, until the table is made: its expected rows.
  uint64_t ids = 0;
  float false_positives = 0.01f;

  HOTBED_HD constexpr bool Filters() const { return by == AdmitBy::kBloom && after > 1; }
  // Touches that a row needs to be no candidate.
  HOTBED_HD constexpr uint32_t Needed() const { return after > 1 && !Filters() ? after : 1; }
  HOTBED_HD constexpr bool HasCandidates() const { return Needed() > 1; }
  // Whether rows can be candidates, or change when they are admitted.
  HOTBED_HD constexpr bool Holds() const { return HasCandidates() || zeros; }
  HOTBED_HD friend bool operator==(const AdmissionParams& a, const AdmissionParams& b) {
    return a.after == b.after && a.probability == b.probability && a.zeros == b.zeros &&
           a.by == b.by && a.ids == b.ids && a.false_positives == b.false_positives;
  }
};

// Unaligned and little-endian, as everything in a row.
template <typename T>
HOTBED_HD T LoadTouch(const uint8_t* at) {
  T value = 0;
  __builtin_memcpy(&value, at, sizeof(T));
  return value;
}
template <typename T>
HOTBED_HD void StoreTouch(uint8_t* at, T value) {
  __builtin_memcpy(at, &value, sizeof(T));
}

// `touches`: the last kTouchBytes of a row.
HOTBED_HD RowTouches LoadTouches(const uint8_t* touches) {
  return {LoadTouch<uint32_t>(touches), LoadTouch<uint32_t>(touches + 4),
          LoadTouch<uint64_t>(touches + 8)};
}
HOTBED_HD void StoreTouches(const RowTouches& row, uint8_t* touches) {
  StoreTouch<uint32_t>(touches, row.count);
  StoreTouch<uint32_t>(touches + 4, row.time_s);
  StoreTouch<uint64_t>(touches + 8, row.step);
}

// Counts a touch; returns the number of touches.
HOTBED_HD uint32_t TouchRow(const UpdateScalars& push, uint8_t* touches) {
  const uint32_t before = LoadTouch<uint32_t>(touches);
  const uint32_t count = before == ~0u ? before : before + 1;
  StoreTouches({count, push.time_s, push.step}, touches);
  return count;
}

// `shows`: the kShowBytes of a row.
HOTBED_HD RowShows LoadShows(const uint8_t* shows) {
  RowShows row;
  __builtin_memcpy(&row.shows, shows, 4);
  __builtin_memcpy(&row.clicks, shows + 4, 4);
  return row;
}
HOTBED_HD void StoreShows(const RowShows& row, uint8_t* shows) {
  __builtin_memcpy(shows, &row.shows, 4);
  __builtin_memcpy(shows + 4, &row.clicks, 4);
}

// Shows and clicks of a row last touched at `from_s`, as of `to_s`. By products alone, so that
// every processor gets the same bits.
HOTBED_HD RowShows DecayShows(const ShowParams& params, RowShows row, uint32_t from_s,
                              uint32_t to_s) {
  if (!(params.decay < 1.0f) || from_s == 0 || to_s <= from_s) return row;
  uint32_t periods = to_s / params.period_s - from_s / params.period_s;
  float factor = 1.0f;
  for (float power = params.decay; periods != 0; periods >>= 1, power *= power) {
    if ((periods & 1) != 0) factor *= power;
  }
  return {row.shows * factor, row.clicks * factor};
}

// Adds what a push says; `from_s` is the time of the touch before.
HOTBED_HD void AddShows(const ShowParams& params, const RowShows& more, uint32_t from_s,
                        uint32_t to_s, uint8_t* shows) {
  RowShows row = DecayShows(params, LoadShows(shows), from_s, to_s);
  row.shows += more.shows;
  row.clicks += more.clicks;
  StoreShows(row, shows);
}

// Whether the touch of row `id` at `step` makes the row, by the table's probability.
HOTBED_HD bool AdmittedByChance(float probability, uint64_t seed, uint64_t id, uint64_t step) {
  if (!(probability < 1.0f)) return true;
  uint64_t x = seed ^ (id * 0x9e3779b97f4a7c15ull) ^ (step * 0xbf58476d1ce4e5b9ull);
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) < probability * 16777216.0f;
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_TOUCHES_H_
