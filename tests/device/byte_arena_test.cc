#include "device/byte_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/common/test_seed.h"
#include "tests/device/case.h"

namespace hotbed {
namespace device {
namespace byte_arena_test {

TEST(ByteArena, LendsEachUnitOnceAndJoinsWhatComesBack) {
  const TestSeed seed(21);
  CaseRandom random(seed.value());
  constexpr uint64_t kUnits = 200;
  ByteArena arena(kUnits * ByteArena::kUnit + 17);
  std::vector<bool> used(kUnits);
  std::map<uint64_t, uint64_t> lent;  // first unit -> units
  for (int step = 0; step < 5000; ++step) {
    if (random.OneIn(2) || lent.empty()) {
      const uint64_t units = 1 + random.Below(20);
      const uint64_t offset = arena.Take(units * ByteArena::kUnit - random.Below(ByteArena::kUnit));
      uint64_t first = 0, run = 0;  // the first fit, unit by unit
      for (uint64_t u = 0; u < kUnits && run < units; ++u) {
        run = used[u] ? 0 : run + 1;
        if (run == 1) first = u;
      }
      ASSERT_EQ(offset, run == units ? first * ByteArena::kUnit : ByteArena::kNone);
      if (run < units) continue;
      lent[first] = units;
      for (uint64_t u = 0; u < units; ++u) used[first + u] = true;
    } else {
      auto given = lent.begin();
      std::advance(given, random.Below(lent.size()));
      arena.Give(given->first * ByteArena::kUnit);
      for (uint64_t u = 0; u < given->second; ++u) used[given->first + u] = false;
      lent.erase(given);
    }
    uint64_t free = 0;
    for (uint64_t u = 0; u < kUnits; ++u) free += !used[u];
    ASSERT_EQ(arena.free_bytes(), free * ByteArena::kUnit);
  }
  for (const auto& [first, units] : lent) arena.Give(first * ByteArena::kUnit);
  EXPECT_EQ(arena.largest_free(), kUnits * ByteArena::kUnit);
}

}  // namespace byte_arena_test
}  // namespace device
}  // namespace hotbed
