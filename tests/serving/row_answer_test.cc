#include "serving/row_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "common/random.h"
#include "row_math/pooling.h"
#include "row_math/row_formats.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace row_answer_test {

using testing::HasSubstr;

constexpr RowFormatKind kKinds[] = {RowFormatKind::kFp32,    RowFormatKind::kFp16,
                                    RowFormatKind::kBf16,    RowFormatKind::kTbeInt8,
                                    RowFormatKind::kTbeInt4, RowFormatKind::kTbeInt2};
constexpr RowType kTypes[] = {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8};
constexpr uint64_t kIds = 200;

// A lookup of random bags.
struct Asked {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> offsets;
  std::vector<float> weights;
  v1::ServedPooling pooling = v1::SERVED_ROWS;

  ServedBags bags() const {
    return {.pooling = pooling,
            .ids = static_cast<uint32_t>(ids.size()),
            .bags = static_cast<uint32_t>(offsets.size()),
            .offsets = reinterpret_cast<const char*>(offsets.data()),
            .weights = weights.empty() ? nullptr : reinterpret_cast<const char*>(weights.data())};
  }
};

Asked RandomLookup(v1::ServedPooling pooling, Random* random) {
  Asked asked;
  asked.pooling = pooling;
  const uint64_t bags = random->Uniform(20);
  for (uint64_t b = 0; b < bags; ++b) {
    asked.offsets.push_back(static_cast<uint32_t>(asked.ids.size()));
    const uint64_t length = random->OneIn(4) ? 0 : random->Uniform(12);
    for (uint64_t i = 0; i < length; ++i) asked.ids.push_back(random->Uniform(kIds));
  }
  if (pooling == v1::SERVED_MAX || random->OneIn(2)) return asked;
  for (size_t i = 0; i < asked.ids.size(); ++i) {
    asked.weights.push_back(random->OneIn(5) ? 0.0f : static_cast<float>(random->Double() - 0.5));
  }
  return asked;
}

struct Answer {
  std::vector<uint8_t> rows;
  std::vector<char> exists;
  bool operator==(const Answer& other) const {
    return rows == other.rows && exists == other.exists;
  }
};

Answer AnswerOf(const ServedRows& rows, RowType type, const Asked& asked) {
  const ServedBags bags = asked.bags();
  EXPECT_TRUE(CheckServedBags("table \"t\"", bags).ok());
  Answer answer = {
      std::vector<uint8_t>(uint64_t{bags.rows()} * RowWireBytes(type, rows.coder().dim())),
      std::vector<char>(bags.ids)};
  EXPECT_TRUE(AnswerRows(rows, type, reinterpret_cast<const char*>(asked.ids.data()), bags,
                         answer.rows.data(), answer.exists.data())
                  .ok());
  return answer;
}

// The bags pooled by plain loops, out of the rows of a lookup that is not pooled.
Answer TwinOf(const ServedRows& rows, RowType type, const Asked& asked) {
  const uint32_t dim = rows.coder().dim();
  const Answer plain = AnswerOf(rows, RowType::kFp32, {.ids = asked.ids});
  std::vector<float> values(asked.ids.size() * dim);
  if (!values.empty()) std::memcpy(values.data(), plain.rows.data(), plain.rows.size());
  Answer twin = {std::vector<uint8_t>(asked.offsets.size() * RowWireBytes(type, dim)),
                 plain.exists};
  const ServedBags bags = asked.bags();
  for (uint32_t b = 0; b < bags.bags; ++b) {
    std::vector<float> bag(dim);
    float divisor = 0;
    for (uint32_t i = bags.Begin(b); i < bags.Begin(b + 1); ++i) {
      const float weight = asked.weights.empty() ? 1.0f : asked.weights[i];
      divisor += weight;
      for (uint32_t d = 0; d < dim; ++d) {
        const float value = values[uint64_t{i} * dim + d];
        const bool first = i == bags.Begin(b);
        if (asked.pooling != v1::SERVED_MAX) {
          const float product = value * weight;
          bag[d] += product;
        } else if (first || IsLarger(value, bag[d])) {
          bag[d] = value;
        }
      }
    }
    if (bags.Begin(b) == bags.Begin(b + 1)) continue;
    for (uint32_t d = 0; asked.pooling == v1::SERVED_MEAN && d < dim; ++d) {
      bag[d] = divisor == 0 ? 0 : bag[d] / divisor;
    }
    rows.coder().loops().answer(type, bag.data(), dim,
                                twin.rows.data() + b * RowWireBytes(type, dim));
  }
  return twin;
}

TEST(RowAnswerTest, PooledBagsHaveTheBitsOfPlainRowsPooledByTheCaller) {
  const TestSeed seed(826);
  Random random(seed.value());
  ServedMemory memory(64 << 20);
  for (const RowFormatKind kind : kKinds) {
    for (const RowLoops* loops : {&PlainRowLoops(), &BestRowLoops()}) {
      const auto dim = static_cast<uint32_t>(1 + random.Uniform(70));
      ServedRows rows(RowCoder(kind, dim, *loops), &memory);
      for (uint64_t id = 0; id < kIds; id += 1 + random.Uniform(3)) {
        std::vector<float> row(dim);
        for (float& value : row) value = static_cast<float>(random.Double() - 0.5);
        if (random.OneIn(30)) row[random.Uniform(dim)] = INFINITY;  // reads as NaN
        bool finite = false;
        ASSERT_TRUE(rows.Put(id, row.data(), &finite).ok());
      }
      for (const v1::ServedPooling pooling : {v1::SERVED_SUM, v1::SERVED_MEAN, v1::SERVED_MAX}) {
        for (const RowType type : kTypes) {
          const Asked asked = RandomLookup(pooling, &random);
          ASSERT_TRUE(AnswerOf(rows, type, asked) == TwinOf(rows, type, asked))
              << "format " << static_cast<int>(kind) << ", pooling " << pooling << ", type "
              << static_cast<int>(type);
        }
      }
    }
  }
}

TEST(RowAnswerTest, AMeanCountsIdsWithoutARowAndAMaxTakesThemAsZeros) {
  ServedMemory memory(1 << 20);
  ServedRows rows(RowCoder(RowFormatKind::kFp32, 2), &memory);
  const float row[] = {-4, 8};
  bool finite = false;
  ASSERT_TRUE(rows.Put(7, row, &finite).ok());
  const auto pool = [&rows](v1::ServedPooling pooling, std::vector<float> weights) {
    // The bags {7, 8}, {}, {7}, {8}.
    const Asked asked = {{7, 8, 7, 8}, {0, 2, 2, 3}, std::move(weights), pooling};
    const Answer answer = AnswerOf(rows, RowType::kFp32, asked);
    EXPECT_EQ(answer.exists, (std::vector<char>{1, 0, 1, 0}));
    std::vector<float> values(8);
    std::memcpy(values.data(), answer.rows.data(), 32);
    return values;
  };
  using Floats = std::vector<float>;
  EXPECT_EQ(pool(v1::SERVED_SUM, {}), (Floats{-4, 8, 0, 0, -4, 8, 0, 0}));
  EXPECT_EQ(pool(v1::SERVED_MEAN, {}), (Floats{-2, 4, 0, 0, -4, 8, 0, 0}));
  EXPECT_EQ(pool(v1::SERVED_MAX, {}), (Floats{0, 8, 0, 0, -4, 8, 0, 0}));
  EXPECT_EQ(pool(v1::SERVED_SUM, {2, 1, 0.5, 1}), (Floats{-8, 16, 0, 0, -2, 4, 0, 0}));
  // The weights of the first bag add up to 0.
  EXPECT_EQ(pool(v1::SERVED_MEAN, {2, -2, 0.5, 1}), (Floats{0, 0, 0, 0, -4, 8, 0, 0}));
}

// Every third row; the most that were read together.
class EveryThird : public RowsBelow {
 public:
  bool needed() const override { return true; }
  absl::Status Read(absl::Span<const uint64_t> ids, const Visit& visit) const override {
    most = std::max(most, ids.size());
    for (size_t at = 0; at < ids.size(); ++at) {
      const float row[2] = {static_cast<float>(ids[at]), 1};
      if (ids[at] % 3 == 1) visit(at, ids[at], reinterpret_cast<const uint8_t*>(row));
    }
    return absl::OkStatus();
  }
  absl::Status Scan(const std::function<bool(uint64_t, const uint8_t*)>&) const override {
    return absl::UnimplementedError("not of lookups");
  }
  bool damaged() const override { return false; }
  uint64_t rows() const override { return 0; }
  uint64_t bytes() const override { return 0; }

  mutable size_t most = 0;
};

TEST(RowAnswerTest, RowsOnDiskAreReadInRunsAndBagsGoOverTheirBorders) {
  ServedMemory memory(1 << 20);
  VersionedRows in_memory(RowCoder(RowFormatKind::kFp32, 2), &memory);
  constexpr uint32_t kCount = 5'000;
  Asked asked;
  for (uint64_t id = 0; id < kCount; ++id) {
    asked.ids.push_back(id);
    const float row[2] = {static_cast<float>(id), 1};
    if (id % 3 != 0) continue;
    ASSERT_TRUE(in_memory.PutRow(id, reinterpret_cast<const uint8_t*>(row)).ok());
  }
  RowsView view = in_memory.Latest();
  EXPECT_TRUE(view.InMemory());
  const auto below = std::make_shared<EveryThird>();
  view.below = below;
  EXPECT_FALSE(view.InMemory());
  const char* const ids = reinterpret_cast<const char*>(asked.ids.data());
  std::vector<float> rows(2 * kCount);
  std::vector<char> exists(kCount), tiers(kCount);
  ASSERT_TRUE(AnswerRows(view, RowType::kFp32, ids, asked.bags(),
                         reinterpret_cast<uint8_t*>(rows.data()), exists.data(), tiers.data())
                  .ok());
  EXPECT_LE(below->most, 1024u);
  for (uint32_t id = 0; id < kCount; ++id) {
    const bool there = id % 3 != 2;
    ASSERT_EQ(exists[id], there ? 1 : 0) << id;
    ASSERT_EQ(tiers[id], id % 3 == 0 ? kTierMemory : there ? kTierDisk : 0) << id;
    ASSERT_EQ(rows[2 * id], there ? static_cast<float>(id) : 0) << id;
  }
  asked.pooling = v1::SERVED_SUM;
  asked.offsets = {0, 1'000, 1'500};
  float bags[6] = {};
  ASSERT_TRUE(AnswerRows(view, RowType::kFp32, ids, asked.bags(), reinterpret_cast<uint8_t*>(bags),
                         exists.data())
                  .ok());
  EXPECT_EQ(bags[1], 667);  // rows that are there
  EXPECT_EQ(bags[3], 333);
  EXPECT_EQ(bags[5], 2'334);
}

TEST(RowAnswerTest, BagsThatDoNotFitAreRefusedWithTablePositionAndValue) {
  const auto refusal = [](const Asked& asked) {
    const absl::Status status = CheckServedBags("table \"user\"", asked.bags());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const std::vector<uint64_t> ids = {1, 2, 3};
  EXPECT_EQ(refusal({ids, {1, 2}, {}, v1::SERVED_SUM}),
            "table \"user\": offsets[0] is 1; allowed: 0, where the first bag begins");
  EXPECT_EQ(
      refusal({ids, {0, 2, 1}, {}, v1::SERVED_SUM}),
      "table \"user\": offsets[2] is 1; allowed: 2 (the one before) to 3 (the number of ids)");
  EXPECT_THAT(refusal({ids, {0, 4}, {}, v1::SERVED_MEAN}), HasSubstr("offsets[1] is 4"));
  EXPECT_THAT(refusal({ids, {}, {}, v1::SERVED_MAX}), HasSubstr("offsets is empty"));
  EXPECT_THAT(refusal({ids, {0}, {}, v1::SERVED_ROWS}),
              HasSubstr("pooling is none, and there are offsets"));
  EXPECT_THAT(refusal({ids, {}, {1, 1, 1}, v1::SERVED_ROWS}),
              HasSubstr("pooling is none, and there are weights"));
  EXPECT_THAT(refusal({ids, {0}, {1, 1, 1}, v1::SERVED_MAX}),
              HasSubstr("pooling is max, and there are weights"));
  EXPECT_THAT(refusal({ids, {0}, {1, NAN, 1}, v1::SERVED_SUM}), HasSubstr("weights[1] is nan"));
  EXPECT_THAT(refusal({ids, {0}, {}, static_cast<v1::ServedPooling>(9)}),
              HasSubstr("pooling is 9"));
}

}  // namespace row_answer_test
}  // namespace hotbed
