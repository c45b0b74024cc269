#include "serving/row_answer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/metrics.h"
#include "serving/rows/bag_row.h"

namespace hotbed {
namespace {

// Rows ahead whose part of the index comes to the cache.
constexpr uint32_t kAhead = 8;

struct RowCounters {
  static RowCounters& Get() {
    static auto* const counters = new RowCounters;
    return *counters;
  }
  Counter rows{"hotbed_serving_lookup_rows_total", "Rows that lookups asked serving replicas for."};
  Counter missing{"hotbed_serving_missing_rows_total",
                  "Rows among those that do not exist; the answer says so."};
};

// Calls `take(i, row)` for the ids in order, and sets their flags; `row` is null where there is
// none.
template <typename Take>
void ForEachRow(const RowsView& rows, const char* ids, uint32_t count, char* exists, Take take) {
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
    exists[i] = row == nullptr ? 0 : 1;
    take(i, row);
  }
  RowCounters::Get().rows.Add(count);
  if (missing > 0) RowCounters::Get().missing.Add(missing);
}

// A row per id; zeros are there already.
void AnswerIds(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
               uint8_t* out, char* exists) {
  const RowCoder& coder = rows.coder();
  const uint64_t row_bytes = RowWireBytes(type, coder.dim());
  std::vector<float> scratch(coder.dim());
  ForEachRow(rows, ids, bags.ids, exists, [&](uint32_t i, const uint8_t* row) {
    if (row != nullptr) coder.Answer(row, type, scratch.data(), out + i * row_bytes);
  });
}

// A row per bag; zeros are there already.
void AnswerBags(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                uint8_t* out, char* exists) {
  const uint64_t row_bytes = RowWireBytes(type, rows.coder().dim());
  BagRow pooled(rows.coder(), bags.pooling == v1::SERVED_MAX ? RowPooling::kMax : RowPooling::kSum);
  uint32_t bag = 0;
  float weight_sum = 0;
  ForEachRow(rows, ids, bags.ids, exists, [&](uint32_t i, const uint8_t* row) {
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

void AnswerRows(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                uint8_t* out, char* exists) {
  (bags.pooled() ? AnswerBags : AnswerIds)(rows, type, ids, bags, out, exists);
}

}  // namespace hotbed
