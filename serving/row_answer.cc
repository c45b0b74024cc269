#include "serving/row_answer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "serving/rows/bag_row.h"
#include "serving/rows/rows_on_device.h"

namespace hotbed {
namespace {

// Rows ahead that come to the cache, and rows ahead of those whose entry of the index does.
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

// The rows of a run that memory lacks.
struct MissedRows {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> at;  // of `ids`, among those of the run

  void Add(uint64_t id, uint32_t i) {
    ids.push_back(id);
    at.push_back(i);
  }
};

// Calls `take(i, row, tier)` for those that the device has, and then for those that disk has.
template <typename Take>
absl::Status ReadElsewhere(const RowsView& rows, const MissedRows& missed, Take take) {
  MissedRows left;
  if (rows.device == nullptr) {
    left = missed;
  } else {
    size_t next = 0;
    const auto add_until = [&](size_t m) {
      for (; next < m; ++next) left.Add(missed.ids[next], missed.at[next]);
    };
    rows.device->Read(missed.ids, [&](size_t m, uint64_t, const uint8_t* row) {
      add_until(m);
      take(missed.at[next++], row, kTierDevice);
    });
    add_until(missed.ids.size());
  }
  if (left.ids.empty()) return absl::OkStatus();
  return rows.below->Read(
      left.ids, [&](size_t m, uint64_t, const uint8_t* row) { take(left.at[m], row, kTierDisk); });
}

// Rows in memory are found first, and then the others: in runs, so that a call takes little memory
// however many ids it has.
template <typename Take>
absl::Status ForEachRowBelow(const RowsView& rows, const char* ids, uint32_t count,
                             const RowFlags& flags, Take take) {
  const uint32_t row_bytes = rows.coder().row_bytes();
  std::vector<uint8_t> bytes;
  uint64_t missing = 0;
  for (uint32_t first = 0; first < count; first += kBelowAtOnce) {
    const uint32_t run = std::min(kBelowAtOnce, count - first);
    std::vector<const uint8_t*> found(run);
    MissedRows missed;
    const RowsView::Reader reader(rows);
    for (uint32_t i = 0; i < run; ++i) {
      uint64_t id = 0;
      std::memcpy(&id, ids + uint64_t{first + i} * sizeof(id), sizeof(id));
      found[i] = reader.Find(id);
      flags.Set(first + i, found[i] == nullptr ? 0 : kTierMemory);
      if (found[i] == nullptr) missed.Add(id, i);
    }
    if (!missed.ids.empty() && rows.below->needed()) {
      bytes.resize(missed.ids.size() * row_bytes);
      uint8_t* to = bytes.data();
      HOTBED_RETURN_IF_ERROR(
          ReadElsewhere(rows, missed, [&](uint32_t i, const uint8_t* row, char tier) {
            found[i] = to;
            to = std::copy_n(row, row_bytes, to);
            flags.Set(first + i, tier);
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
  for (uint32_t i = 0; i < count + 3 * kAhead; ++i) {
    const uint32_t chunk = i - kAhead, row = i - 2 * kAhead, now = i - 3 * kAhead;
    if (i < count) reader.Prefetch(id_of(i));
    if (chunk < count) reader.PrefetchChunk(id_of(chunk));
    if (row < count) reader.PrefetchRow(id_of(row));
    if (i < 3 * kAhead) continue;
    const uint8_t* const found = reader.Find(id_of(now));
    missing += found == nullptr ? 1 : 0;
    flags.Set(now, found == nullptr ? 0 : kTierMemory);
    take(now, found);
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
absl::Status PoolBags(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
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

// A table's bags as values of this process, of which some are pooled.
class BagsToPool {
 public:
  BagsToPool(const char* ids, const ServedBags& bags) : pooling_(bags.pooling) {
    ids_.resize(bags.ids);
    if (bags.ids > 0) std::memcpy(ids_.data(), ids, bags.ids * sizeof(uint64_t));
    if (bags.weights != nullptr) {
      weights_.resize(bags.ids);
      if (bags.ids > 0) std::memcpy(weights_.data(), bags.weights, bags.ids * sizeof(float));
    }
    for (uint32_t b = 0; b < bags.bags; ++b) {
      begins_.push_back(bags.Begin(b));
      lengths_.push_back(bags.Begin(b + 1) - bags.Begin(b));
    }
  }

  const std::vector<uint32_t>& lengths() const { return lengths_; }
  absl::Span<const uint64_t> IdsOf(uint32_t bag) const {
    return absl::MakeConstSpan(ids_).subspan(begins_[bag], lengths_[bag]);
  }
  RowsOnDevice::Bags ForDevice() const {
    return {.pooling = pooling_ == v1::SERVED_MAX ? RowPooling::kMax : RowPooling::kSum,
            .ids = ids_,
            .lengths = lengths_,
            .weights = weights_.empty() ? nullptr : weights_.data()};
  }
  // Makes the mean of the bag's sum, as BagRow::Divide does.
  void Divide(uint32_t bag, absl::Span<float> sum) const {
    auto divisor = static_cast<float>(lengths_[bag]);
    if (!weights_.empty()) {
      divisor = 0;
      for (uint32_t i = 0; i < lengths_[bag]; ++i) divisor += weights_[begins_[bag] + i];
    }
    for (float& value : sum) value = divisor == 0 ? 0 : value / divisor;
  }
  // Pools the bags `which` here, each to its place.
  absl::Status PoolHere(const RowsView& rows, RowType type, const std::vector<uint32_t>& which,
                        uint8_t* out, const RowFlags& flags) const;
  void SetFlags(uint32_t bag, char tier, const RowFlags& flags) const {
    for (uint32_t i = 0; i < lengths_[bag]; ++i) flags.Set(begins_[bag] + i, tier);
  }

 private:
  const v1::ServedPooling pooling_;
  std::vector<uint64_t> ids_;
  std::vector<float> weights_;
  std::vector<uint32_t> begins_, lengths_;
};

absl::Status BagsToPool::PoolHere(const RowsView& rows, RowType type,
                                  const std::vector<uint32_t>& which, uint8_t* out,
                                  const RowFlags& flags) const {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> offsets;
  std::vector<float> weights;
  for (const uint32_t bag : which) {
    offsets.push_back(static_cast<uint32_t>(ids.size()));
    const absl::Span<const uint64_t> of = IdsOf(bag);
    ids.insert(ids.end(), of.begin(), of.end());
    if (weights_.empty()) continue;
    const auto first = weights_.begin() + begins_[bag];
    weights.insert(weights.end(), first, first + lengths_[bag]);
  }
  const ServedBags bags = {
      .pooling = pooling_,
      .ids = static_cast<uint32_t>(ids.size()),
      .bags = static_cast<uint32_t>(which.size()),
      .offsets = reinterpret_cast<const char*>(offsets.data()),
      .weights = weights_.empty() ? nullptr : reinterpret_cast<const char*>(weights.data())};
  const uint64_t row_bytes = RowWireBytes(type, rows.coder().dim());
  std::vector<uint8_t> pooled(which.size() * row_bytes);
  std::vector<char> exists(ids.size()), tiers(ids.size());
  HOTBED_RETURN_IF_ERROR(PoolBags(rows, type, reinterpret_cast<const char*>(ids.data()), bags,
                                  pooled.data(), {exists.data(), tiers.data()}));
  uint32_t at = 0;
  for (size_t k = 0; k < which.size(); ++k) {
    std::copy_n(pooled.data() + k * row_bytes, row_bytes, out + which[k] * row_bytes);
    for (uint32_t i = 0; i < lengths_[which[k]]; ++i) {
      flags.Set(begins_[which[k]] + i, tiers[at++]);
    }
  }
  return absl::OkStatus();
}

// Adds to `unpooled` the bags with rows in which the view's version differs.
void AddThoseOfVersion(const RowsView& rows, const BagsToPool& asked,
                       std::vector<uint32_t>* unpooled) {
  if (rows.version == nullptr) return;
  const RowsView::Reader reader(rows);
  for (uint32_t bag = 0; bag < asked.lengths().size(); ++bag) {
    const absl::Span<const uint64_t> ids = asked.IdsOf(bag);
    if (std::any_of(ids.begin(), ids.end(), [&](uint64_t id) { return reader.Differs(id); })) {
      unpooled->push_back(bag);
    }
  }
  std::sort(unpooled->begin(), unpooled->end());
  unpooled->erase(std::unique(unpooled->begin(), unpooled->end()), unpooled->end());
}

// Bags whose rows are all on the device are pooled there, to the same bits. A version's rows are
// looked for after the device has answered (versioned_rows.h).
absl::Status AnswerBags(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                        uint8_t* out, const RowFlags& flags) {
  if (rows.device == nullptr || !rows.device->pools()) {
    return PoolBags(rows, type, ids, bags, out, flags);
  }
  const BagsToPool asked(ids, bags);
  std::optional<RowsOnDevice::PooledBags> pooled = rows.device->Pool(asked.ForDevice());
  if (!pooled.has_value()) return PoolBags(rows, type, ids, bags, out, flags);
  AddThoseOfVersion(rows, asked, &pooled->unpooled);
  const RowCoder& coder = rows.coder();
  const uint64_t row_bytes = RowWireBytes(type, coder.dim());
  auto unpooled = pooled->unpooled.begin();
  uint64_t counted = 0;
  for (uint32_t bag = 0; bag < bags.bags; ++bag) {
    if (unpooled != pooled->unpooled.end() && *unpooled == bag) {
      ++unpooled;
      continue;
    }
    if (asked.lengths()[bag] == 0) continue;  // zeros are there already
    const auto row = absl::MakeSpan(pooled->rows).subspan(uint64_t{bag} * coder.dim(), coder.dim());
    if (bags.pooling == v1::SERVED_MEAN) asked.Divide(bag, row);
    coder.loops().answer(type, row.data(), coder.dim(), out + bag * row_bytes);
    asked.SetFlags(bag, kTierDevice, flags);
    counted += asked.lengths()[bag];
  }
  RowCounters::Get().rows.Add(counted);
  if (pooled->unpooled.empty()) return absl::OkStatus();
  return asked.PoolHere(rows, type, pooled->unpooled, out, flags);
}

}  // namespace

absl::Status AnswerRows(const RowsView& rows, RowType type, const char* ids, const ServedBags& bags,
                        uint8_t* out, char* exists, char* tiers) {
  return (bags.pooled() ? AnswerBags : AnswerIds)(rows, type, ids, bags, out, {exists, tiers});
}

}  // namespace hotbed
