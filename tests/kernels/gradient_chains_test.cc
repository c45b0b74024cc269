// Gradients of a row that occurs several times, summed within the update: the bits of the same sums
// made before it.
#include <gtest/gtest.h>

#include <vector>

#include "common/random.h"
#include "row_math/optimizer.h"
#include "server/kernels/cpu/cpu_kernels.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/kernel_rows.h"

namespace hotbed {
namespace {

struct Occurrences {
  std::vector<std::vector<float>> gradients;
  std::vector<uint32_t> first;  // of each row
  std::vector<uint32_t> next;
  std::vector<std::vector<float>> sums;  // of each row
};

// Row r occurs r % 5 + 1 times, here and there among the others.
Occurrences Draw(Random* random, uint32_t rows, uint32_t dim) {
  Occurrences o;
  std::vector<uint32_t> last(rows, kNoSlot);
  o.first.assign(rows, kNoSlot);
  o.sums.assign(rows, std::vector<float>(dim, 0.0f));
  for (uint32_t turn = 0; turn < 5; ++turn) {
    for (uint32_t r = 0; r < rows; ++r) {
      if (r % 5 < turn) continue;
      const auto number = static_cast<uint32_t>(o.gradients.size());
      (last[r] == kNoSlot ? o.first[r] : o.next[last[r]]) = number;
      last[r] = number;
      o.next.push_back(kNoSlot);
      std::vector<float>& gradient = o.gradients.emplace_back(dim);
      for (uint32_t i = 0; i < dim; ++i) {
        gradient[i] = static_cast<float>(random->Double() * 2 - 1);
        o.sums[r][i] = turn == 0 ? gradient[i] : o.sums[r][i] + gradient[i];
      }
    }
  }
  return o;
}

std::vector<const uint8_t*> Pointers(const std::vector<std::vector<float>>& rows) {
  std::vector<const uint8_t*> pointers;
  for (const auto& row : rows) pointers.push_back(reinterpret_cast<const uint8_t*>(row.data()));
  return pointers;
}

Bytes Applied(const CpuKernelSet& set, const TableSpec& spec, const Occurrences& o, bool chains) {
  KernelRows rows(spec, 0, /*direct=*/true);
  std::vector<uint32_t> slots;
  for (uint32_t r = 0; r < o.first.size(); ++r) slots.push_back(r);
  const std::vector<const uint8_t*> pointers = Pointers(chains ? o.gradients : o.sums);
  ApplyBatch batch;
  batch.table = &rows.table;
  batch.slots = slots.data();
  batch.count = static_cast<uint32_t>(slots.size());
  batch.gradients = pointers.data();
  if (chains) batch.picks = o.first.data();
  if (chains) batch.next = o.next.data();
  batch.scalars = ResolveScalars(spec.optimizer, 0.1f, 1);
  set.apply(&batch);
  EXPECT_EQ(batch.dirtied, slots.size());
  return rows.Memory();
}

TEST(GradientChainsTest, AreSumsInOrder) {
  const TestSeed seed(20260306);
  Random random(seed.value());
  const CpuKernelSets sets = AvailableCpuKernelSets();
  for (OptimizerKind kind :
       {OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam, OptimizerKind::kLamb}) {
    for (uint32_t dim : {1u, 31u, 64u, 65u, 127u, 128u, 200u}) {
      TableSpec spec;
      spec.optimizer.kind = kind;
      spec.dim = dim;
      const Occurrences o = Draw(&random, 23, dim);
      const Bytes want = Applied(*sets.sets[0], spec, o, /*chains=*/false);
      for (int s = 0; s < sets.count; ++s) {
        EXPECT_EQ(Applied(*sets.sets[s], spec, o, /*chains=*/true), want)
            << sets.sets[s]->name << ", kind " << static_cast<int>(kind) << ", dim " << dim;
      }
    }
  }
}

}  // namespace
}  // namespace hotbed
