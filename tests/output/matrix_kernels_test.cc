// The matrix kernels of every instruction set against plain loops in fp64.
#include "server/kernels/matrix_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/random.h"
#include "server/kernels/cpu_kernels.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace matrix_kernels_test {

std::vector<float> Randoms(Random* random, size_t count, double size) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(size * (2 * random->Double() - 1)));
  }
  return values;
}

struct Aligned {
  alignas(64) float floats[kMatrixScratchFloats];
};

template <typename Test>
void ForEachSet(Test test) {
  const CpuKernelSets available = AvailableCpuKernelSets();
  for (int i = 0; i < available.count; ++i) {
    const MatrixKernelSet& set = MatrixKernelsOf(available.sets[i]->name);
    SCOPED_TRACE(set.name);
    EXPECT_STREQ(set.name, available.sets[i]->name);
    test(set);
  }
}

void CompareProduct(const MatrixKernelSet& set, Random* random, uint32_t m, uint32_t n, uint32_t k,
                    bool transposed, bool add) {
  static Aligned scratch;
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << (transposed ? " ^T" : ""));
  const std::vector<float> a = Randoms(random, size_t{m} * k, 1);
  const std::vector<float> b = Randoms(random, size_t{k} * n, 1);
  std::vector<float> c = Randoms(random, size_t{m} * n, 1);
  std::vector<double> want(c.begin(), c.end());
  const uint64_t a_row = transposed ? 1 : k;
  const uint64_t a_column = transposed ? m : 1;
  for (uint32_t i = 0; i < m; ++i) {
    for (uint32_t j = 0; j < n; ++j) {
      double& sum = want[i * n + j];
      if (!add) sum = 0;
      for (uint32_t d = 0; d < k; ++d) sum += double{a[i * a_row + d * a_column]} * b[d * n + j];
    }
  }
  MatrixProduct product;
  product.a = a.data();
  product.a_row = a_row;
  product.a_column = a_column;
  product.b = b.data();
  product.b_row = n;
  product.c = c.data();
  product.c_row = n;
  product.m = m;
  product.n = n;
  product.k = k;
  product.add = add;
  product.scratch = scratch.floats;
  set.multiply(product);
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_NEAR(c[i], want[i], 1e-6 * (8 + std::sqrt(k)) * 2) << "element " << i;
  }
}

TEST(MatrixKernelsTest, ProductsEqualPlainLoops) {
  const TestSeed seed(31);
  Random random(seed.value());
  ForEachSet([&random](const MatrixKernelSet& set) {
    for (const bool transposed : {false, true}) {
      for (const bool add : {false, true}) {
        CompareProduct(set, &random, 1, 1, 1, transposed, add);
        CompareProduct(set, &random, 13, 33, 7, transposed, add);
        CompareProduct(set, &random, 121, 65, 257, transposed, add);
        CompareProduct(set, &random, 24, 520, 20, transposed, add);
        for (int i = 0; i < 5; ++i) {
          CompareProduct(set, &random, 1 + static_cast<uint32_t>(random.Uniform(150)),
                         1 + static_cast<uint32_t>(random.Uniform(70)),
                         1 + static_cast<uint32_t>(random.Uniform(300)), transposed, add);
        }
      }
    }
  });
}

TEST(MatrixKernelsTest, SoftmaxEqualsPlainLoops) {
  const TestSeed seed(37);
  Random random(seed.value());
  ForEachSet([&random](const MatrixKernelSet& set) {
    for (const uint32_t tokens : {1u, 2u, 16u, 37u}) {
      for (const uint32_t rows : {1u, 31u, 100u}) {
        std::vector<float> logits = Randoms(&random, size_t{tokens} * rows, 30);
        std::vector<float> maxima(tokens, -std::numeric_limits<float>::infinity());
        std::vector<double> sums(tokens);
        std::vector<double> totals(tokens);
        const LogitBlock block = {logits.data(), rows, tokens};
        set.raise_maxima(block, maxima.data());
        set.add_exponentials(block, maxima.data(), sums.data(), totals.data());
        const std::vector<float> scales = Randoms(&random, tokens, 1);
        const std::vector<float> floors = Randoms(&random, tokens, 1);
        const std::vector<float> before = logits;
        set.to_gradients(block, maxima.data(), scales.data(), floors.data());
        for (uint32_t t = 0; t < tokens; ++t) {
          double most = -1e9;
          double total = 0;
          double sum = 0;
          for (uint32_t r = 0; r < rows; ++r) most = std::max<double>(most, before[r * tokens + t]);
          for (uint32_t r = 0; r < rows; ++r) {
            const double logit = before[r * tokens + t];
            total += logit;
            sum += std::exp(logit - most);
            ASSERT_NEAR(logits[r * tokens + t],
                        double{scales[t]} * std::exp(logit - most) - double{floors[t]}, 3e-7);
          }
          EXPECT_EQ(maxima[t], most);
          EXPECT_NEAR(sums[t], sum, 3e-7 * sum);
          EXPECT_NEAR(totals[t], total, 1e-5 * rows);
        }
      }
    }
  });
}

TEST(MatrixKernelsTest, ExponentialsAreRightOverTheWholeRange) {
  ForEachSet([](const MatrixKernelSet& set) {
    for (double x = -100; x <= 80; x += 0.37) {
      float value = static_cast<float>(x);
      const float zero = 0;
      const float one = 1;
      set.to_gradients({&value, 1, 1}, &zero, &one, &zero);
      const double want = x < -87 ? 0 : std::exp(double{static_cast<float>(x)});
      ASSERT_NEAR(value, want, 3e-7 * want) << x;
    }
  });
}

}  // namespace matrix_kernels_test
}  // namespace hotbed
