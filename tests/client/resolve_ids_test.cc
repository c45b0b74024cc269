// Padding ids and bounds modes against rules written out id by id.
#include "client/batch/resolve_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace resolve_ids_test {

using testing::ElementsAre;

uint64_t Id(int64_t id) { return static_cast<uint64_t>(id); }

TableSpec Bounded(uint64_t rows, BoundsMode mode) {
  TableSpec table;
  table.rows = rows;
  table.bounds_mode = mode;
  return table;
}

std::vector<uint8_t> SkipsOf(const ResolvedIds& resolved) {
  if (resolved.skip == nullptr) return std::vector<uint8_t>(resolved.ids.size());
  return {resolved.skip, resolved.skip + resolved.ids.size()};
}

TEST(ResolveIdsTest, IdsInsideAreNotCopied) {
  const std::vector<uint64_t> ids = {0, 9, 3};
  for (BoundsMode mode : {BoundsMode::kError, BoundsMode::kZero, BoundsMode::kModulo}) {
    ResolvedIds out;
    EXPECT_EQ(ResolveIds(Bounded(10, mode), ids, &out), 3);
    EXPECT_EQ(out.ids.data(), ids.data());
    EXPECT_EQ(out.skip, nullptr);
  }
}

TEST(ResolveIdsTest, ErrorNamesTheFirstPosition) {
  const std::vector<uint64_t> ids = {0, 9, 10, 11};
  ResolvedIds out;
  EXPECT_EQ(ResolveIds(Bounded(10, BoundsMode::kError), ids, &out), 2);
  // A padding id may be outside the table.
  TableSpec table = Bounded(10, BoundsMode::kError);
  table.has_padding_id = true;
  table.padding_id = 10;
  EXPECT_EQ(ResolveIds(table, ids, &out), 3);
  table.padding_id = Id(-1);
  const std::vector<uint64_t> padded = {Id(-1), 4, Id(-1)};
  EXPECT_EQ(ResolveIds(table, padded, &out), 3);
  EXPECT_THAT(SkipsOf(out), ElementsAre(kIdPadding, 0, kIdPadding));
  EXPECT_EQ(out.zeroed, 0);
}

TEST(ResolveIdsTest, ModuloIsTheMathematicalOne) {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const std::vector<uint64_t> ids = {
      10, 11, Id(-1), Id(-10), Id(-11), Id(lowest), 7, Id(std::numeric_limits<int64_t>::max())};
  ResolvedIds out;
  EXPECT_EQ(ResolveIds(Bounded(10, BoundsMode::kModulo), ids, &out), ids.size());
  // 2^63 is 8 modulo 10, so -2^63 is 2 and 2^63 - 1 is 7.
  EXPECT_THAT(out.ids, ElementsAre(0, 1, 9, 0, 9, 2, 7, 7));
  TableSpec table = Bounded(10, BoundsMode::kModulo);
  table.has_padding_id = true;
  table.padding_id = 9;
  EXPECT_EQ(ResolveIds(table, ids, &out), ids.size());
  EXPECT_THAT(SkipsOf(out), ElementsAre(0, 0, kIdPadding, 0, kIdPadding, 0, 0, 0));
}

TEST(ResolveIdsTest, HashedTablesHaveNoBounds) {
  TableSpec table = Bounded(10, BoundsMode::kError);
  table.hashed = true;
  const std::vector<uint64_t> ids = {~uint64_t{0}, 0, 1000};
  ResolvedIds out;
  EXPECT_EQ(ResolveIds(table, ids, &out), 3);
  EXPECT_EQ(out.skip, nullptr);
  table.has_padding_id = true;
  EXPECT_EQ(ResolveIds(table, ids, &out), 3);
  EXPECT_THAT(SkipsOf(out), ElementsAre(0, kIdPadding, 0));
}

TEST(ResolveIdsTest, MatchesItsDumbTwin) {
  const TestSeed seed(17);
  Random random(seed.value());
  ResolvedIds out;  // one for all rounds: a round must leave no traces in the next
  for (int round = 0; round < 500; ++round) {
    TableSpec table = Bounded(1 + random.Uniform(30), static_cast<BoundsMode>(random.Uniform(3)));
    table.has_padding_id = random.OneIn(2);
    table.padding_id = Id(static_cast<int64_t>(random.Uniform(40)) - 5);
    std::vector<uint64_t> ids(random.Uniform(50));
    const int64_t spread = random.OneIn(3) ? 1 : 20;
    for (uint64_t& id : ids) {
      id = Id(static_cast<int64_t>(random.Uniform(table.rows + 2 * spread)) - spread);
    }
    const auto rows = static_cast<int64_t>(table.rows);
    std::vector<uint64_t> want_ids = ids;
    std::vector<uint8_t> want_skip(ids.size());
    uint64_t zeroed = 0;
    size_t refused = ids.size();
    for (size_t i = 0; i < ids.size() && refused == ids.size(); ++i) {
      if (table.has_padding_id && ids[i] == table.padding_id) {
        want_skip[i] = kIdPadding;
      } else if (ids[i] < table.rows) {
        continue;
      } else if (table.bounds_mode == BoundsMode::kError) {
        refused = i;
      } else if (table.bounds_mode == BoundsMode::kZero) {
        want_skip[i] = kIdZeroed;
        ++zeroed;
      } else {
        const auto id = static_cast<int64_t>(ids[i]);
        want_ids[i] = Id((id % rows + rows) % rows);
        if (table.has_padding_id && want_ids[i] == table.padding_id) want_skip[i] = kIdPadding;
      }
    }
    ASSERT_EQ(ResolveIds(table, ids, &out), refused);
    if (refused != ids.size()) continue;
    ASSERT_EQ(SkipsOf(out), want_skip);
    ASSERT_EQ(out.zeroed, zeroed);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (want_skip[i] == 0) {
        ASSERT_EQ(out.ids[i], want_ids[i]) << i;
      }
    }
  }
}

}  // namespace resolve_ids_test
}  // namespace hotbed
