// Cases that the scalar twin of kernel_identity_test.cc does not cover: values that are not finite
// or not normal, and the choice of the set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "server/kernels/cpu_kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace hotbed {
namespace kernel_sets_test {

TEST(KernelSetsTest, OddValuesTravelAlike) {
  using Limits = std::numeric_limits<float>;
  const std::vector<float> odd = {Limits::infinity(),
                                  -Limits::infinity(),
                                  Limits::quiet_NaN(),
                                  Limits::denorm_min(),
                                  -0.0f,
                                  Limits::max(),
                                  6.1e-5f,
                                  65520.0f,
                                  1e-40f};
  const CpuKernelSets sets = AvailableCpuKernelSets();
  for (uint32_t dim : {1u, 9u, 31u, 64u, 70u}) {
    for (float value : odd) {
      for (RowType type : {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8}) {
        TableSpec spec;
        spec.dim = dim;
        std::vector<float> row(dim, 0.5f);
        row[dim / 2] = value;
        const KernelRows rows(spec, 0, /*direct=*/true);
        Bytes first;
        for (int s = 0; s < sets.count; ++s) {
          Bytes out(RowWireBytes(type, dim));
          sets.sets[s]->encode_row(rows.table, BytesOf(row).data(), type, out.data());
          if (s == 0) first = out;
          EXPECT_EQ(out, first) << sets.sets[s]->name << ", " << value << " at dim " << dim
                                << " as type " << int(type);
        }
        if (type != RowType::kInt8) {
          EXPECT_EQ(first, PlainRow(row, type));
        } else if (!std::isfinite(value)) {
          float bias;
          std::memcpy(&bias, first.data() + dim + 4, sizeof(bias));
          EXPECT_TRUE(std::isnan(bias)) << "a broken row reads as NaN";
        }
      }
    }
  }
}

// A direct table whose slots all hold a row is read without looking at the bits.
TEST(KernelSetsTest, AFullDirectTableMissesARowAgainOnceOneIsGone) {
  constexpr uint32_t kSlots = KernelRows::kSlots;
  const CpuKernelSets sets = AvailableCpuKernelSets();
  for (int s = 0; s < sets.count; ++s) {
    TableSpec spec;
    spec.dim = 64;
    KernelRows rows(spec, 0, /*direct=*/true);
    std::vector<uint64_t> positions(kSlots);
    std::vector<uint32_t> slots(kSlots), found(kSlots), missing(kSlots), gone(kSlots);
    std::vector<const uint8_t*> sources(kSlots, nullptr);
    for (uint32_t i = 0; i < kSlots; ++i) positions[i] = KernelRows::kFirst + i;
    for (uint32_t i = 0; i < kSlots; ++i) slots[i] = i;
    const auto count_missing = [&] {
      ProbeBatch probe;
      probe.table = &rows.table;
      probe.ids = positions.data();
      probe.count = kSlots;
      probe.slots = found.data();
      probe.missing = missing.data();
      sets.sets[s]->probe(&probe);
      GatherBatch gather;
      gather.table = &rows.table;
      gather.ids = positions.data();
      gather.count = kSlots;
      Bytes out(RowWireBytes(RowType::kFp32, 64) * kSlots);
      gather.rows = out.data();
      gather.missing = missing.data();
      sets.sets[s]->gather(&gather);
      EXPECT_EQ(gather.missing_count, probe.missing_count);
      return gather.missing_count;
    };
    EXPECT_EQ(count_missing(), kSlots);
    InsertBatch insert;
    insert.table = &rows.table;
    insert.positions = positions.data();
    insert.slots = slots.data();
    insert.sources = sources.data();
    insert.count = kSlots;
    sets.sets[s]->insert(&insert);
    EXPECT_EQ(rows.table.rows, kSlots);
    EXPECT_EQ(count_missing(), 0u);
    EXPECT_EQ(found, slots);
    EvictBatch evict;
    evict.table = &rows.table;
    evict.chosen = false;
    evict.slot_first = 17;
    evict.slot_limit = 18;
    evict.slots = gone.data();
    sets.sets[s]->evict(&evict);
    EXPECT_EQ(rows.table.rows, kSlots - 1);
    EXPECT_EQ(count_missing(), 1u);
    EXPECT_EQ(missing[0], 17u);
  }
}

TEST(KernelSetsTest, TheLastSetIsTheBaseAndCanBeForced) {
  const CpuKernelSets sets = AvailableCpuKernelSets();
  ASSERT_GE(sets.count, 1);
  EXPECT_STREQ(sets.sets[sets.count - 1]->name, "base");
  ::setenv("HOTBED_CPU_ISA", "base", /*overwrite=*/1);  // read once, by the first use in a process
  EXPECT_STREQ(CpuKernels().name, "base");
}

TEST(KernelSetsTest, TheProcessorDecidesHowRowsAreFetched) {
  EXPECT_STREQ(ChooseFetchWay({"AuthenticAMD", 0x1a}, nullptr).name, "near");
  EXPECT_STREQ(ChooseFetchWay({"AuthenticAMD", 0x19}, nullptr).name, "far");
  EXPECT_STREQ(ChooseFetchWay({"GenuineIntel", 0x1a}, nullptr).name, "far");
  EXPECT_STREQ(ChooseFetchWay({"", 0}, nullptr).name, "far");
  EXPECT_STREQ(ChooseFetchWay({"AuthenticAMD", 0x1a}, "far").name, "far");
  EXPECT_STREQ(ChooseFetchWay({"GenuineIntel", 6}, "near").name, "near");
  EXPECT_STREQ(ChooseFetchWay({"GenuineIntel", 6}, "no such way").name, "far");
}

}  // namespace kernel_sets_test
}  // namespace hotbed
