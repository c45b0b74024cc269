#include "serving/row_answer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/metrics.h"
#include "common/status_macros.h"
#include "serving/rows/bag_row.h"

namespace hotbed {
namespace {

// Rows ahead whose part of the index comes to the cache.
constexpr uint32_t kAhead = 8;
// Rows of which those that are on disk are read together.
constexpr uint32_t kBelowAtOnce = 1024;

struct RowCounters {
  static RowCounters& Get() {
    static auto* const counters = new RowCounters;
    return *counters;
  }
  Counter rows{"hotbed_serving_lookup_rows_total", "Rows that lookups asked serving replicas for."};
  Counter missing{"hotbed_serving_missing_rows_total",
                  "Rows among those that do not exist; the answer says so."};
};

// Where the rows of an answer were found, a byte per id each; `tiers` may be null.
struct RowFlags {
  char* exists;
  char* tiers;

  void Set(uint32_t i, char tier) const {
    exists[i] = tier == 0 ? 0 : 1;
    if (tiers != nullptr) tiers[i] = tier;
  }
};

// Rows in memory are found first, and then those among the others that disk has: in runs, so that
// a call takes little memory however many ids it has.
template <typename Take>
absl::Status ForEachRowBelow(const RowsView& rows, const char* ids, uint32_t count,
                             const RowFlags& flags, Take take) {
  const uint32_t row_bytes = rows.coder().row_bytes();
  std::vector<uint64_t> missed;
  std::vector<uint32_t> at;  // of `missed`, among those of the run
  std::vector<uint8_t> bytes;
  uint64_t missing = 0;
  for (uint32_t first = 0; first < count; first += kBelowAtOnce) {
    const uint32_t run = std::min(kBelowAtOnce, count - first);
    std::vector<const uint8_t*> found(run);
    missed.clear();
    at.clear();
    const RowsView::Reader reader(rows);
    for (uint32_t i = 0; i < run; ++i) {
      uint64_t id = 0;
      std::memcpy(&id, ids + uint64_t{first + i} * sizeof(id), sizeof(id));
      found[i] = reader.Find(id);
      flags.Set(first + i, found[i] == nullptr ? 0 : kTierMemory);
      if (found[i] != nullptr) continue;
      missed.push_back(id);
      at.push_back(i);
    }
    if (!missed.empty() && rows.below->needed()) {
      bytes.resize(missed.size() * row_bytes);
      HOTBED_RETURN_IF_ERROR(rows.below->Read(missed, [&](size_t m, uint64_t, const uint8_t* row) {
        found[at[m]] = std::copy_n(row, row_bytes, bytes.data() + m * row_bytes) - row_bytes;
        flags.Set(first + at[m], kTierDisk);
      }));
    }
    for (uint32_t i = 0; i < run; ++i) {
      missing += found[i] == nullptr ? 1 : 0;
      take(first + i, found[i]);
    }
  }
  RowCounters::Get().rows.Add(count);
  if (missing > 0) RowCounters::Get().missing.Add(missing);
  return absl::OkStatus();
}

// Calls `take(i, row)` for the ids in order, and sets their flags; `row` is null where there is
// none.
template <typename Take>
absl::Status ForEachRow(const RowsView& rows, const char* ids, uint32_t count,
                        const RowFlags& flags, Take take) {
  if (rows.below != nullptr && rows.below->needed()) {
    return ForEachRowBelow(rows, ids, count, flags, take);
  }
  const auto id_of = [ids](uint32_t i) {
    uint64_t id = 0;
    std::memcpy(&id, ids + uint64_t{i} * sizeof(id), sizeof(id));
    return id;
  };
  uint64_t missing = 0;
  const RowsView::Reader reader(rows);
  for (uint32_t i = 0; i < std::min(kAhead, count); ++i) reader.Prefetch(id_of(i));
  for (uint32_t i = 0; i < count; ++i) {
    if (i + kAhead < count) reader.Prefetch(id_of(i + kAhead));
    const uint8_t* const row = reader.Find(id_of(i));
    missing += row == nullptr ? 1 : 0;
    flags.Set(i, row == nullptr ? 0 : kTierMemory);
    take(i, row);
  }
  RowCounters::Get().rows.Add(count);
  if (missing > 0) RowCounters::Get().missing.Add(missing);
  if (rows.below != nullptr && rows.below->needed()) {
    return absl::UnavailableError("memory was used up while they were looked for; ask again");
  }
  return absl::OkStatus();
}

// A row per id; zeros are there already.
absl::Status AnswerIds(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                       uint8_t* out, const RowFlags& flags) {
  const RowCoder& coder = rows.coder();
  const uint64_t row_bytes = RowWireBytes(type, coder.dim());
  std::vector<float> scratch(coder.dim());
  return ForEachRow(rows, ids, bags.ids, flags, [&](uint32_t i, const uint8_t* row) {
    if (row != nullptr) coder.Answer(row, type, scratch.data(), out + i * row_bytes);
  });
}

// A row per bag; zeros are there already.
absl::Status AnswerBags(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                        uint8_t* out, const RowFlags& flags) {
  const uint64_t row_bytes = RowWireBytes(type, rows.coder().dim());
  BagRow pooled(rows.coder(), bags.pooling == v1::SERVED_MAX ? RowPooling::kMax : RowPooling::kSum);
  uint32_t bag = 0;
  float weight_sum = 0;
  return ForEachRow(rows, ids, bags.ids, flags, [&](uint32_t i, const uint8_t* row) {
    while (bags.Begin(bag + 1) <= i) ++bag;  // the empty ones, and one that has ended
    if (i == bags.Begin(bag)) {
      pooled.Begin();
      weight_sum = 0;
    }
    pooled.Take(row, bags.Weight(i));
    weight_sum += bags.Weight(i);
    const uint32_t end = bags.Begin(bag + 1);
    if (i + 1 < end) return;
    if (bags.pooling == v1::SERVED_MEAN) {
      // A sum of ones in fp32 ends at 2^24.
      pooled.Divide(bags.weights != nullptr ? weight_sum
                                            : static_cast<float>(end - bags.Begin(bag)));
    }
    pooled.Answer(type, out + bag * row_bytes);
  });
}

}  // namespace

absl::Status AnswerRows(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                        uint8_t* out, char* exists, char* tiers) {
  return (bags.pooled() ? AnswerBags : AnswerIds)(rows, type, ids, bags, out, {exists, tiers});
}

}  // namespace hotbed
