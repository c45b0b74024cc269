// Stochastic rounding: without bias (measured), exact where nothing is lost, and the same bits for
// ever (vectors from an implementation in exact fractions).
#include "row_math/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace stochastic_rounding_test {

TEST(StochasticRoundingTest, Vectors) {
  const struct {
    uint64_t seed, id;
    uint32_t column;
    uint64_t step;
    float value;
    uint32_t draw;
    uint16_t fp16, bf16;
  } kVectors[] = {
      {0x1, 0x2, 0, 0x1, 0x1.99999ap-4f, 0x5a024daf, 0x2e66, 0x3dcd},
      {0x123456789abcdef0, 0xfedcba9876543210, 3, 0x7, -0x1.99999ap-4f, 0x8ac78875, 0xae66, 0xbdcd},
      {0x2a, 0x7, 8191, 0x10000000005, 0x1.921fap+1f, 0xf91f7f71, 0x4249, 0x4049},
      {0x2a, 0x7, 130, 0x9, 0x1.0c6f7ap-20f, 0x5d7a5149, 0x0011, 0x3586},
      {0x2a, 0x8, 130, 0x9, -0x1.27476cp-20f, 0x50e13742, 0x8013, 0xb593},
      {0x5, 0x8000000000000000, 17, 0x3e8, 0x1.f75104p-15f, 0x5b32aad8, 0x03ef, 0x387c},
      {0x5, 0x6, 1, 0x2, 0x1.ffbep+15f, 0xf787cdb7, 0x7bff, 0x4780},
      {0x5, 0x6, 2, 0x2, -0x1.16c2p-133f, 0xc4d4dd4c, 0x8000, 0x8001},
      {0x9, 0x9, 9, 0x9, 0x1.555556p-2f, 0x47e64c6e, 0x3555, 0x3eaa},
  };
  for (const auto& v : kVectors) {
    uint32_t room[36];
    const uint32_t draw = *RoundingDraws({v.seed, v.id, 0}, v.column, v.step, room);
    EXPECT_EQ(draw, v.draw) << v.value;
    EXPECT_EQ(RoundToFp16(v.value, draw), v.fp16) << v.value;
    EXPECT_EQ(RoundToBf16(v.value, draw), v.bf16) << v.value;
  }
}

// The spacing of the type's numbers around x.
double UlpOf(bool fp16, double x) {
  int exponent;
  std::frexp(x, &exponent);
  return fp16 ? std::ldexp(1.0, std::max(exponent - 1, -14) - 10)
              : std::ldexp(1.0, std::max(exponent - 1, -126) - 7);
}

// Rounds `value` a million times as rows are: 40 columns, ids and steps that grow.
double MeanErrorInUlps(bool fp16, float value, uint64_t seed) {
  constexpr uint32_t kDim = 40;
  constexpr uint64_t kRows = 25000;
  std::vector<float> row(64, value);
  std::vector<uint8_t> stored(2 * kDim);
  const auto* values = reinterpret_cast<const uint8_t*>(row.data());
  const double ulp = UlpOf(fp16, value);
  double sum = 0;
  for (uint64_t r = 0; r < kRows; ++r) {
    const RowKey key{seed, r / 50, 3};
    fp16 ? StoreRounded<Fp16Rounding>(key, r % 50, kDim, values, stored.data())
         : StoreRounded<Bf16Rounding>(key, r % 50, kDim, values, stored.data());
    for (uint32_t i = 0; i < kDim; ++i) {
      const double got =
          fp16 ? Fp16Codec::Load(stored.data(), i) : Bf16Codec::Load(stored.data(), i);
      const double error = (got - double{value}) / ulp;
      EXPECT_LT(std::abs(error), 1.0) << "not a neighbour of " << value;
      sum += error;
    }
  }
  return sum / (kDim * kRows);
}

TEST(StochasticRoundingTest, MeanErrorIsZero) {
  const TestSeed seed(20260302);
  // Normal numbers, just below a power of two, subnormals of fp16, below its smallest one,
  // subnormals of fp32 and bf16.
  for (float value : {0.1f, -3.14159f, 0x1.fff8p3f, 1e-6f, -5.9e-5f, 0x1.ffcp-15f, 1.7e-8f, -4e-9f,
                      1e-39f, 3.3e-41f}) {
    for (bool fp16 : {true, false}) {
      if (fp16 && std::abs(value) < 1e-9f) continue;  // below 2^-31 of fp16's smallest step
      const double error = MeanErrorInUlps(fp16, value, seed.value());
      EXPECT_LT(std::abs(error), 0.005) << (fp16 ? "fp16 " : "bf16 ") << value;
      if (HasFailure()) return;
    }
  }
}

TEST(StochasticRoundingTest, WhatTheTypeHoldsNeverChanges) {
  const TestSeed seed(20260303);
  Random random(seed.value());
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    for (uint32_t draw : {0u, 0xffffffffu, static_cast<uint32_t>(random.Next())}) {
      if (!std::isnan(Fp16ToFloat(half))) {
        EXPECT_EQ(RoundToFp16(Fp16ToFloat(half), draw), half);
      }
      if (!std::isnan(Bf16ToFloat(half))) {
        EXPECT_EQ(RoundToBf16(Bf16ToFloat(half), draw), half);
      }
    }
    if (HasFailure()) return;
  }
}

TEST(StochasticRoundingTest, BeyondTheLargestFiniteIsNearest) {
  for (uint32_t draw : {0u, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_EQ(RoundToFp16(65519.0f, draw), 0x7bff);
    EXPECT_EQ(RoundToFp16(-65520.0f, draw), 0xfc00);
    EXPECT_EQ(RoundToBf16(std::numeric_limits<float>::max(), draw), 0x7f80);
    EXPECT_TRUE(std::isnan(Fp16ToFloat(RoundToFp16(std::nanf(""), draw))));
    EXPECT_TRUE(std::isnan(Bf16ToFloat(RoundToBf16(std::nanf(""), draw))));
  }
}

// A table cut by columns rounds as the whole one: draws belong to columns of the table.
TEST(StochasticRoundingTest, SlicesRoundAsTheWhole) {
  const TestSeed seed(20260304);
  Random random(seed.value());
  std::vector<float> row(128);
  for (float& x : row) x = static_cast<float>(random.Double() - 0.5);
  std::vector<uint8_t> whole(200), cut(200);
  const auto* values = reinterpret_cast<const uint8_t*>(row.data());
  StoreRounded<Bf16Rounding>({seed.value(), 77, 0}, 12, 100, values, whole.data());
  uint32_t first = 0;
  for (uint32_t width : {1u, 34u, 33u, 32u}) {
    const std::vector<float> part(row.begin() + first, row.begin() + first + width);
    std::vector<float> room(96);
    std::copy(part.begin(), part.end(), room.begin());
    StoreRounded<Bf16Rounding>({seed.value(), 77, first}, 12, width,
                               reinterpret_cast<const uint8_t*>(room.data()),
                               cut.data() + 2 * first);
    first += width;
  }
  EXPECT_EQ(first, 100u);
  EXPECT_EQ(cut, whole);
}

}  // namespace stochastic_rounding_test
}  // namespace hotbed
