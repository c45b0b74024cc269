#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "common/random.h"
#include "planner/torchrec/room_tree.h"
#include "tests/common/test_seed.h"

namespace hotbed::torchrec {
namespace torchrec_room_tree_test {

TEST(RoomTreeTest, LeastTimeWithRoomThenLowestPlace) {
  RoomTree tree;
  tree.Reset(3);
  EXPECT_EQ(tree.First({}), std::nullopt);
  tree.Set(0, 2, {.hbm = 10, .ddr = 1});
  tree.Set(1, 1, {.hbm = 5, .ddr = 9});
  tree.Set(2, 1, {.hbm = 5, .ddr = 9});
  EXPECT_EQ(tree.First({}), 1u);
  EXPECT_EQ(tree.First({.hbm = 6, .ddr = 0}), 0u);
  EXPECT_EQ(tree.First({.hbm = 6, .ddr = 2}), std::nullopt);  // in two places, not in one
  tree.Set(1, 1, {.hbm = -1, .ddr = 9});
  EXPECT_EQ(tree.First({}), 2u);
}

TEST(RoomTreeTest, AgreesWithALinearSearch) {
  const TestSeed seed(7);
  Random random(seed.value());
  for (int round = 0; round < 60; ++round) {
    const auto places = static_cast<uint32_t>(1 + random.Uniform(40));
    std::vector<double> ms(places, 0);
    std::vector<Storage> free(places, {.hbm = -1, .ddr = -1});
    RoomTree tree;
    tree.Reset(places);
    for (int step = 0; step < 200; ++step) {
      const auto place = static_cast<uint32_t>(random.Uniform(places));
      ms[place] = static_cast<double>(random.Uniform(6));
      free[place] = {.hbm = random.Uniform(8), .ddr = random.Uniform(8)};
      tree.Set(place, ms[place], free[place]);
      const Storage need = {.hbm = random.Uniform(9), .ddr = random.Uniform(9)};
      std::optional<uint32_t> expected;
      for (uint32_t p = 0; p < places; ++p) {
        if (need.FitsIn(free[p]) && (!expected || ms[p] < ms[*expected])) expected = p;
      }
      ASSERT_EQ(tree.First(need), expected);
    }
  }
}

}  // namespace torchrec_room_tree_test
}  // namespace hotbed::torchrec
