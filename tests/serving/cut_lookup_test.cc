#include "client/serving/cut_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace cut_lookup_test {

TEST(ServedPartTest, PartsAreDisjointAndHaveAllIds) {
  for (const bool hashed : {false, true}) {
    for (const uint64_t places : {7ull, 100ull, 1ull << 16, (1ull << 63) + 5}) {
      if (hashed && places != kBuckets) continue;
      const ServedPlaces of{hashed, places};
      for (const uint32_t parts : {1u, 2u, 3u, 7u, 64u}) {
        if (parts > places) continue;
        EXPECT_EQ(of.FirstOf({0, parts}), 0u);
        EXPECT_EQ(of.FirstOf({parts, parts}), places);
        for (uint64_t i = 0; i < 1000; ++i) {
          const uint64_t id = i < 500 ? i * (places / 500 + 1) : Mix64(i);
          const uint32_t part = of.PartOfId(id, parts);
          const uint64_t place = of.PlaceOf(id);
          ASSERT_LT(part, parts);
          EXPECT_GE(place, of.FirstOf({part, parts}));
          EXPECT_TRUE(place >= places || place < of.FirstOf({part + 1, parts})) << id;
        }
      }
    }
  }
}

// As a server pools: sums or maxima of rows of 2 elements, in the order of the ids.
std::vector<float> Pool(const ServingIds& asked, const std::vector<float>& rows) {
  std::vector<float> bags;
  for (size_t bag = 0; bag < asked.offsets.size(); ++bag) {
    const size_t first = asked.offsets[bag];
    const size_t limit = bag + 1 < asked.offsets.size() ? asked.offsets[bag + 1] : asked.ids.size();
    for (size_t d = 0; d < 2; ++d) {
      float& to = bags.emplace_back(0.0f);
      for (size_t i = first; i < limit; ++i) {
        const float value = rows[2 * i + d] * (asked.weights.empty() ? 1 : asked.weights[i]);
        to = asked.pooling == Pooling::kSum ? to + value : i == first ? value : std::max(to, value);
      }
    }
  }
  return bags;
}

// As a server answers: the row of an id is its number and its half; multiples of 5 do not exist.
ServingRows AnswerOf(const CutLookup::Piece& piece) {
  ServingRows rows;
  rows.dim = 2;
  rows.server = absl::StrCat("r", piece.part.part);
  rows.age = absl::Milliseconds(10 * piece.part.part);
  for (const uint64_t id : piece.asked.ids) {
    const bool exists = id % 5 != 0;
    rows.exists.push_back(exists ? 1 : 0);
    rows.values.push_back(exists ? static_cast<float>(id) : 0);
    rows.values.push_back(exists ? static_cast<float>(id) / 2 : 0);
  }
  if (piece.asked.pooling != Pooling::kNone) rows.values = Pool(piece.asked, rows.values);
  return rows;
}

std::vector<ServingRows> Ask(const CutLookup& cut) {
  std::vector<ServingRows> answers;
  for (const CutLookup::Piece& piece : cut.pieces()) answers.push_back(AnswerOf(piece));
  return cut.Join(std::move(answers));
}

TEST(CutLookupTest, RowsComeBackInTheOrderOfTheirIds) {
  const std::vector<uint64_t> ids = {99, 3, 40, 3, 66, 0, 98};
  const std::vector<ServingIds> tables = {
      {.table = "whole", .ids = ids}, {.table = "cut", .ids = ids}, {.table = "cut", .ids = {}}};
  const TableCut three = {.places = {.hashed = false, .places = 100}, .parts = 3};
  const CutLookup cut(tables, {TableCut(), three, three}, RowType::kFp16);
  ASSERT_EQ(cut.pieces().size(), 1u + 3u + 1u);
  EXPECT_EQ(cut.pieces()[1].ids, (std::vector<uint64_t>{3, 3, 0}));
  EXPECT_EQ(cut.pieces()[1].wire_type, RowType::kFp16);
  const std::vector<ServingRows> rows = Ask(cut);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].values, rows[0].values);
  EXPECT_EQ(rows[1].exists, (std::vector<uint8_t>{1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(rows[1].server, "r0,r1,r2");
  EXPECT_EQ(rows[1].age, absl::Milliseconds(20));
  EXPECT_EQ(rows[2].dim, 2u);
  EXPECT_TRUE(rows[2].values.empty());
}

TEST(CutLookupTest, PartsOfBagsArePooledByTheirServersAndJoinedHere) {
  const std::vector<uint64_t> ids = {99, 3, 40, 1, 66};
  const std::vector<uint32_t> offsets = {0, 3, 3};
  const std::vector<float> weights = {1, 2, 1, 0.5f, -0.5f};
  const auto pooled = [&](Pooling pooling, bool weighted) {
    std::vector<ServingIds> tables = {
        {.table = "cut", .ids = ids, .pooling = pooling, .offsets = offsets}};
    if (weighted) tables[0].weights = weights;
    const CutLookup cut(tables, {{.places = {.hashed = false, .places = 100}, .parts = 2}},
                        RowType::kInt8);
    EXPECT_EQ(cut.pieces().size(), 2u);
    for (const CutLookup::Piece& piece : cut.pieces()) {
      EXPECT_EQ(piece.wire_type, RowType::kFp32);
      EXPECT_EQ(AnswerOf(piece).values.size(), 4u) << "the empty bag is not asked for";
    }
    const std::vector<ServingRows> rows = Ask(cut);
    EXPECT_EQ(rows[0].exists, (std::vector<uint8_t>{1, 1, 0, 1, 1}));
    return rows[0].values;
  };
  using Rows = std::vector<float>;
  EXPECT_EQ(pooled(Pooling::kSum, false), (Rows{102, 51, 0, 0, 67, 33.5}));
  EXPECT_EQ(pooled(Pooling::kMean, false), (Rows{34, 17, 0, 0, 33.5, 16.75}));
  EXPECT_EQ(pooled(Pooling::kMax, false), (Rows{99, 49.5, 0, 0, 66, 33}));
  EXPECT_EQ(pooled(Pooling::kSum, true), (Rows{105, 52.5, 0, 0, -32.5, -16.25}));
  EXPECT_EQ(pooled(Pooling::kMean, true), (Rows{26.25, 13.125, 0, 0, 0, 0}));
}

TEST(CutLookupTest, BagsWithoutAnyIdAreZeros) {
  const std::vector<uint32_t> offsets = {0, 0, 0};
  const std::vector<ServingIds> tables = {
      {.table = "cut", .ids = {}, .pooling = Pooling::kMean, .offsets = offsets}};
  const CutLookup cut(tables, {{.places = {.hashed = false, .places = 100}, .parts = 2}},
                      RowType::kFp32);
  ASSERT_EQ(cut.pieces().size(), 1u);
  EXPECT_EQ(Ask(cut)[0].values, std::vector<float>(6));
}

TEST(CutLookupTest, SumsOfPartsAreAddedInTheOrderOfTheParts) {
  const std::vector<uint64_t> ids = {99, 1, 98, 2};
  const std::vector<uint32_t> offsets = {0};
  const std::vector<float> weights = {1e8f, 1, -1e8f, 1};
  const std::vector<ServingIds> tables = {{.table = "cut",
                                           .ids = ids,
                                           .pooling = Pooling::kSum,
                                           .offsets = offsets,
                                           .weights = weights}};
  const CutLookup cut(tables, {{.places = {.hashed = false, .places = 100}, .parts = 2}},
                      RowType::kFp32);
  const float second = 99 * 1e8f + 98 * -1e8f;
  EXPECT_EQ(Ask(cut)[0].values[0], (1.0f + 2.0f) + second);
}

// The answers of two tables "cut" in two parts, of which those in `away` are not answered.
std::vector<ServingRows> AskWithout(const std::vector<uint32_t>& away,
                                    const std::vector<ServingIds>& tables) {
  const TableCut two = {.places = {.hashed = false, .places = 100}, .parts = 2};
  const CutLookup cut(tables, {two, two}, RowType::kFp32);
  std::vector<ServingRows> answers;
  for (const CutLookup::Piece& piece : cut.pieces()) {
    ServingRows& answer = answers.emplace_back();
    if (std::find(away.begin(), away.end(), piece.part.part) == away.end()) {
      answer = AnswerOf(piece);
    } else {
      answer.status = absl::UnavailableError(absl::StrCat("part ", piece.part.part, " is away"));
    }
  }
  return cut.Join(std::move(answers));
}

TEST(CutLookupTest, RowsOfPartsThatAreAwayAreNotKnown) {
  const std::vector<uint64_t> ids = {1, 99, 2, 3, 98};
  const std::vector<uint32_t> offsets = {0, 2, 2, 4};  // {1, 99}, {}, {2, 3}, {98}
  const std::vector<ServingIds> tables = {
      {.table = "cut", .ids = ids},
      {.table = "cut", .ids = ids, .pooling = Pooling::kMean, .offsets = offsets}};
  using Flags = std::vector<uint8_t>;
  using Values = std::vector<float>;
  for (const uint32_t away : {0u, 1u}) {
    const std::vector<ServingRows> rows = AskWithout({away}, tables);
    const bool first = away == 1;  // is there
    for (const ServingRows& one : rows) {
      EXPECT_EQ(one.status.message(), absl::StrCat("part ", away, " is away"));
      EXPECT_EQ(one.server, first ? "r0" : "r1");
      EXPECT_EQ(one.exists, first ? (Flags{1, 0, 1, 1, 0}) : (Flags{0, 1, 0, 0, 1}));
    }
    EXPECT_EQ(rows[0].known, rows[0].exists);
    EXPECT_EQ(rows[0].values, first ? (Values{1, 0.5, 0, 0, 2, 1, 3, 1.5, 0, 0})
                                    : (Values{0, 0, 99, 49.5, 0, 0, 0, 0, 98, 49}));
    EXPECT_EQ(rows[1].known, first ? (Flags{0, 1, 1, 0}) : (Flags{0, 1, 0, 1}));
    EXPECT_EQ(rows[1].values,
              first ? (Values{0, 0, 0, 0, 2.5, 1.25, 0, 0}) : (Values{0, 0, 0, 0, 0, 0, 98, 49}));
  }
  EXPECT_TRUE(AskWithout({}, tables)[0].known.empty());
  const std::vector<ServingRows> none = AskWithout({0, 1}, tables);
  EXPECT_EQ(none[0].status.message(), "part 0 is away");
  EXPECT_TRUE(none[0].known.empty() && none[0].values.empty() && none[0].exists.empty());
}

}  // namespace cut_lookup_test
}  // namespace hotbed
