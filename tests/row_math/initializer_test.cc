#include "row_math/initializer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "row_math/philox.h"

namespace hotbed {
namespace initializer_test {

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, KnownAnswers) {
  const PhiloxDraws zeros = Philox4x32(0, 0, 0, 0, 0, 0);
  EXPECT_EQ(zeros.v[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.v[1], 0xe169c58du);
  EXPECT_EQ(zeros.v[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.v[3], 0x9b00dbd8u);
  const PhiloxDraws ones = Philox4x32(~0u, ~0u, ~0u, ~0u, ~0u, ~0u);
  EXPECT_EQ(ones.v[0], 0x408f276du);
  EXPECT_EQ(ones.v[1], 0x41c83b0eu);
  EXPECT_EQ(ones.v[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.v[3], 0x6d5451fdu);
  const PhiloxDraws pi =
      Philox4x32(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0u);
  EXPECT_EQ(pi.v[0], 0xd16cfe09u);
  EXPECT_EQ(pi.v[1], 0x94fdccebu);
  EXPECT_EQ(pi.v[2], 0x5001e420u);
  EXPECT_EQ(pi.v[3], 0x24126ea1u);
}

TEST(InitializerTest, LogIsWithinTwoUlp) {
  for (uint32_t bits = 0x00800000u; bits < 0x3f800000u; bits += 9973) {
    const float x = FloatFromBits(bits);
    const float want = static_cast<float>(std::log(static_cast<double>(x)));
    const float ulp = std::nextafterf(std::fabs(want), INFINITY) - std::fabs(want);
    ASSERT_NEAR(LogPositive(x), want, 2.01 * ulp) << x;
  }
}

TEST(InitializerTest, InverseNormalInvertsTheDistribution) {
  for (uint32_t draw = 0; draw < 0xffff0000u; draw += 65521) {
    const double p = OpenUnit(draw);
    const double z = InverseNormal(static_cast<float>(p));
    const double back = 0.5 * std::erfc(-z / std::sqrt(2.0));
    // Seven digits of z; in terms of p: the density times that.
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    ASSERT_NEAR(back, p, density * 2e-6 * (1 + std::fabs(z)) + 1e-12) << p;
  }
}

struct Moments {
  double mean = 0;
  double variance = 0;
  double kurtosis = 0;
  double low = 1e9;
  double high = -1e9;
};

Moments MomentsOf(const InitializerParams& params) {
  constexpr uint32_t kRows = 4000;
  constexpr uint32_t kDim = 64;
  std::vector<float> values;
  for (uint64_t id = 0; id < kRows; ++id) {
    std::vector<float> row(kDim);
    InitialRow(params, 42, id, 0, kDim, row.data());
    values.insert(values.end(), row.begin(), row.end());
  }
  Moments m;
  for (float v : values) {
    m.mean += v;
    m.low = std::min<double>(m.low, v);
    m.high = std::max<double>(m.high, v);
  }
  m.mean /= values.size();
  double fourth = 0;
  for (float v : values) {
    m.variance += std::pow(v - m.mean, 2);
    fourth += std::pow(v - m.mean, 4);
  }
  m.variance /= values.size();
  m.kurtosis = fourth / values.size() / (m.variance * m.variance);
  return m;
}

TEST(InitializerTest, UniformMoments) {
  const Moments m = MomentsOf({InitializerKind::kUniform, -2.0f, 4.0f});
  EXPECT_NEAR(m.mean, 1.0, 0.02);
  EXPECT_NEAR(m.variance, 3.0, 0.03);
  EXPECT_GE(m.low, -2.0);
  EXPECT_LT(m.high, 4.0);
  EXPECT_GT(m.high, 3.99);
}

TEST(InitializerTest, NormalMoments) {
  const Moments m = MomentsOf({InitializerKind::kNormal, 1.0f, 0.5f});
  EXPECT_NEAR(m.mean, 1.0, 0.005);
  EXPECT_NEAR(m.variance, 0.25, 0.003);
  EXPECT_NEAR(m.kurtosis, 3.0, 0.05);
  EXPECT_GT(m.high, 1.0 + 4 * 0.5);  // 256,000 draws reach beyond four deviations
}

TEST(InitializerTest, TruncatedNormalMoments) {
  const Moments m = MomentsOf({InitializerKind::kTruncatedNormal, 0.0f, 1.0f});
  EXPECT_NEAR(m.mean, 0.0, 0.01);
  EXPECT_NEAR(m.variance, 0.7737, 0.006);  // of the standard normal cut at two deviations
  EXPECT_GE(m.low, -2.0);
  EXPECT_LE(m.high, 2.0);
  EXPECT_GT(m.high, 1.99);
}

// Rows are filled in blocks; the definition goes column by column.
TEST(InitializerTest, BlocksHaveTheBitsOfTheColumns) {
  for (const InitializerKind kind :
       {InitializerKind::kZero, InitializerKind::kConstant, InitializerKind::kUniform,
        InitializerKind::kNormal, InitializerKind::kTruncatedNormal}) {
    const InitializerParams params = {kind, -0.25f, 0.5f};
    for (uint32_t dim = 1; dim <= 75; ++dim) {
      for (uint32_t first = 0; first < 5; ++first) {
        std::vector<float> row(dim + 1, 9.0f);
        InitialRow(params, 42, dim, first, dim, row.data());
        for (uint32_t i = 0; i < dim; ++i) {
          ASSERT_EQ(FloatBits(row[i]), FloatBits(InitialValue(params, 42, dim, first + i)))
              << "dim " << dim << ", column " << first + i;
        }
        ASSERT_EQ(row[dim], 9.0f);
      }
    }
  }
}

TEST(InitializerTest, ZeroAndConstant) {
  float row[5];
  InitialRow({InitializerKind::kZero, 3.0f, 0.0f}, 1, 2, 0, 5, row);
  for (float x : row) EXPECT_EQ(x, 0.0f);
  InitialRow({InitializerKind::kConstant, 3.0f, 0.0f}, 1, 2, 0, 5, row);
  for (float x : row) EXPECT_EQ(x, 3.0f);
}

// A row is the same however it is cut into columns: every placement gives the same table.
TEST(InitializerTest, ColumnsDoNotDependOnTheSlice) {
  for (auto kind :
       {InitializerKind::kUniform, InitializerKind::kNormal, InitializerKind::kTruncatedNormal}) {
    const InitializerParams params{kind, -0.5f, 0.5f};
    std::vector<float> whole(133);
    InitialRow(params, 9, 77, 0, 133, whole.data());
    for (uint32_t first = 0; first < 133; first += 7) {
      for (uint32_t dim : {1u, 31u, 32u, 50u}) {
        if (first + dim > 133) continue;
        std::vector<float> slice(dim);
        InitialRow(params, 9, 77, first, dim, slice.data());
        for (uint32_t i = 0; i < dim; ++i) {
          ASSERT_EQ(FloatBits(slice[i]), FloatBits(whole[first + i])) << first << " " << i;
        }
      }
    }
  }
}

// Part of the format: the first values of seed 42, id 7.
TEST(InitializerTest, Vectors) {
  const auto bits = [](InitializerKind kind, uint32_t column) {
    return FloatBits(InitialValue({kind, -1.0f, 1.0f}, 42, 7, column));
  };
  EXPECT_EQ(bits(InitializerKind::kUniform, 0), 0xbe9109f4u);
  EXPECT_EQ(bits(InitializerKind::kUniform, 5), 0xbeb5f8f4u);
  EXPECT_EQ(bits(InitializerKind::kNormal, 0), 0xbfae71b1u);
  EXPECT_EQ(bits(InitializerKind::kNormal, 5), 0xbfbb0bceu);
  EXPECT_EQ(bits(InitializerKind::kTruncatedNormal, 0), 0xbfac3e10u);
  EXPECT_EQ(bits(InitializerKind::kTruncatedNormal, 5), 0xbfb82cdcu);
}

}  // namespace initializer_test
}  // namespace hotbed
