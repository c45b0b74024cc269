// What memory for rows costs: blocks in use, huge pages for units that are paid for as a whole, and
// credits.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "server/tiers/memory/hot_arena.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace hot_slab_test {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kUnit = HotSlab::kHugeBytes;

// Whether the system was asked for huge pages at `address`; "" if it does not say.
std::string HugePagesAt(const uint8_t* address) {
  std::ifstream smaps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    uint64_t first = 0, limit = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &first, &limit) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      here = first <= at && at < limit;
    } else if (here && line.starts_with("VmFlags:")) {
      if (line.find(" hg") != std::string::npos) return "yes";
      if (line.find(" nh") != std::string::npos) return "no";
    }
  }
  return "";
}

TEST(HotSlabTest, AUnitHasHugePagesOnceAllOfItIsPaidFor) {
  HotSlab slab(3 * kUnit, kPage, kUnit);
  slab.Use(0, 2 * kUnit - kPage);
  if (HugePagesAt(slab.data() + kUnit).empty()) GTEST_SKIP() << "no huge pages on this system";
  EXPECT_EQ(HugePagesAt(slab.data()), "yes");
  EXPECT_EQ(HugePagesAt(slab.data() + kUnit), "no") << "its last page is not paid for";
  slab.data()[0] = 17;
  slab.data()[2 * kUnit - kPage - 1] = 42;
  EXPECT_EQ(slab.BytesToFill(kUnit), kPage);
  slab.Use(2 * kUnit - kPage, 2 * kUnit);
  EXPECT_EQ(HugePagesAt(slab.data() + kUnit), "yes");
  EXPECT_EQ(HugePagesAt(slab.data() + 2 * kUnit), "no");
  EXPECT_EQ(slab.Release(2 * kPage, 3 * kPage), kPage);
  EXPECT_EQ(HugePagesAt(slab.data()), "no");
  EXPECT_EQ(slab.data()[0], 17);
  EXPECT_EQ(slab.data()[2 * kUnit - kPage - 1], 42) << "the move to huge pages keeps it";
  HotSlab small(3 * kUnit, kPage, /*unit_bytes=*/0);
  small.Use(0, 3 * kUnit);
  EXPECT_EQ(HugePagesAt(small.data()), "no");
}

// Two slabs whose addresses follow one another. The first gives a page back, and gets it again.
TEST(HotSlabTest, SmallSlabsShareAHugePageOnceAllOfItIsPaidFor) {
  constexpr uint64_t kBytes = kUnit / 8;
  std::vector<HotSlab> slabs;
  for (int i = 0; i < 40; ++i) slabs.emplace_back(kBytes, kPage, kUnit);
  if (HugePagesAt(slabs[0].data()).empty()) GTEST_SKIP() << "no huge pages on this system";
  // Which slabs lie in a huge page that these alone have.
  std::map<uintptr_t, std::vector<HotSlab*>> of_page;
  for (HotSlab& slab : slabs) {
    const auto at = reinterpret_cast<uintptr_t>(slab.data());
    if (at % kUnit + kBytes <= kUnit) of_page[at / kUnit].push_back(&slab);
  }
  std::erase_if(of_page, [](const auto& page) { return page.second.size() < 8; });
  ASSERT_FALSE(of_page.empty());
  const std::vector<HotSlab*>& page = of_page.begin()->second;
  for (HotSlab* const slab : page) {
    EXPECT_EQ(HugePagesAt(slab->data()), "no");
    slab->data()[17] = 17;
    slab->Use(0, kBytes - (slab == page[3] ? kPage : 0));
  }
  EXPECT_EQ(HugePagesAt(page[0]->data()), "no") << "a page of the fourth is not paid for";
  page[3]->Use(kBytes - kPage, kBytes);
  page[3]->Use(0, kPage);  // a second user, who pays nothing
  for (HotSlab* const slab : page) {
    EXPECT_EQ(HugePagesAt(slab->data()), "yes");
    EXPECT_EQ(slab->data()[17], 17) << "the move to huge pages keeps it";
  }
  EXPECT_EQ(page[3]->Release(0, kPage), 0u) << "somebody else uses it";
  EXPECT_EQ(HugePagesAt(page[0]->data()), "yes");
  EXPECT_EQ(page[3]->Release(0, kPage), kPage);
  for (HotSlab* const slab : page) {
    EXPECT_EQ(HugePagesAt(slab->data()), "no");
    EXPECT_EQ(slab->data()[17], slab == page[3] ? 0 : 17);
  }
  page[3]->Use(0, kPage);
  EXPECT_EQ(HugePagesAt(page[0]->data()), "yes");
  *page[5] = HotSlab();
  EXPECT_EQ(HugePagesAt(page[0]->data()), "no") << "one is gone";
  EXPECT_EQ(page[0]->data()[17], 17);
}

size_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// The slabs of 20,000 shards. With mappings of their own they would exceed what a process may have.
TEST(HotSlabTest, ManySlabsAreFewMappings) {
  const size_t before = Mappings();
  std::vector<HotSlab> slabs;
  for (int i = 0; i < 70'000; ++i) {
    slabs.emplace_back(i % 2 == 0 ? 2 * kUnit : 3 * kPage, kPage, i % 3 == 0 ? kUnit : 0);
    if (i % 1000 == 0) slabs.back().data()[0] = 1;
  }
  EXPECT_LT(Mappings(), before + 100);
}

// Slabs that come and go never share an address, and begin with zeros.
TEST(HotSlabTest, RangesAreTakenAgain) {
  const TestSeed seed(17);
  Random random(seed.value());
  std::vector<std::pair<HotSlab, uint64_t>> slabs;
  for (int i = 0; i < 2000; ++i) {
    if (!slabs.empty() && random.Next() % 2 == 0) {
      const size_t at = random.Next() % slabs.size();
      std::swap(slabs[at], slabs.back());
      slabs.pop_back();
      continue;
    }
    const uint64_t bytes = random.Next() % 2 == 0 ? kPage * (1 + random.Next() % 300)
                                                  : kUnit * (1 + random.Next() % 4);
    auto& [slab, size] = slabs.emplace_back(HotSlab(bytes, kPage, kUnit), bytes);
    for (const uint64_t at : {uint64_t{0}, bytes / 2, bytes - 1}) {
      ASSERT_EQ(slab.data()[at], 0) << "slab " << i << ", byte " << at;
      slab.data()[at] = 0xff;
    }
    if (random.Next() % 4 == 0) slab.Use(0, bytes);
  }
  for (size_t i = 0; i < slabs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const uint8_t* const a = slabs[i].first.data();
      const uint8_t* const b = slabs[j].first.data();
      ASSERT_TRUE(a + slabs[i].second <= b || b + slabs[j].second <= a) << i << " and " << j;
    }
  }
}

// Against a list of who uses what.
TEST(HotSlabTest, RandomUsersPayForEachBlockOnce) {
  const TestSeed seed(5);
  Random random(seed.value());
  constexpr uint64_t kUnits = 4;
  HotSlab slab(kUnits * kUnit, kPage, kUnit);
  std::vector<uint32_t> users(kUnits * kUnit / kPage);
  std::vector<std::pair<uint64_t, uint64_t>> ranges, filled;
  const auto add = [&](uint64_t first, uint64_t limit, int change) {
    uint64_t bytes = 0;
    for (uint64_t block = first / kPage; block <= (limit - 1) / kPage; ++block) {
      if (change > 0 && users[block] == 0) bytes += kPage;
      users[block] += change;
      if (change < 0 && users[block] == 0) bytes += kPage;
    }
    return bytes;
  };
  for (int step = 0; step < 3000; ++step) {
    const uint64_t first = random.Uniform(kUnits * kUnit);
    const uint64_t limit = first + 1 + random.Uniform(std::min(kUnits * kUnit - first, kUnit / 2));
    if (random.OneIn(2)) {
      const uint64_t bytes = slab.BytesToUse(first, limit);
      slab.Use(first, limit);
      ASSERT_EQ(bytes, add(first, limit, 1)) << "step " << step;
      slab.data()[first] = 1;
      ranges.push_back({first, limit});
    } else if (!ranges.empty()) {
      std::swap(ranges[random.Uniform(ranges.size())], ranges.back());
      const auto [from, to] = ranges.back();
      ranges.pop_back();
      ASSERT_EQ(slab.Release(from, to), add(from, to, -1)) << "step " << step;
    }
    if (const uint64_t bytes = slab.BytesToFill(first); bytes > 0) {
      slab.Fill(first);
      filled.push_back({first / kUnit * kUnit, (first / kUnit + 1) * kUnit});
      ASSERT_EQ(bytes, add(filled.back().first, filled.back().second, 1)) << "step " << step;
      ASSERT_EQ(slab.BytesToFill(first), 0u) << "step " << step;
    }
    if (random.OneIn(50)) {
      uint64_t bytes = 0;
      for (const auto& [from, to] : filled) bytes += add(from, to, -1);
      filled.clear();
      ASSERT_EQ(slab.EmptyFilled(), bytes) << "step " << step;
    }
  }
}

TEST(HotArenaTest, ACreditIsKeptForItsOwnerUntilItIsTakenBack) {
  HotArena arena(1000);
  HotArena::Table table;
  HotArena::Account owner{&table}, other{&table};
  arena.SetCredit(&owner, 600);
  EXPECT_FALSE(arena.Take(&other, 500));
  EXPECT_TRUE(arena.Take(&other, 400));
  EXPECT_TRUE(arena.Take(&owner, 200));
  EXPECT_FALSE(arena.Take(&other, 100)) << "400 of the credit are left";
  arena.SetCredit(&owner, 0);
  EXPECT_TRUE(arena.Take(&other, 400));
  EXPECT_EQ(arena.unused(), 0u);
}

}  // namespace hot_slab_test
}  // namespace hotbed
