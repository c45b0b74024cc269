// The vector converters against the scalar ones, and the scalar ones against known values.
#include "client/rows/row_convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/random.h"
#include "row_math/quantize.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace row_convert_test {

constexpr RowType kTypes[] = {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8};

float AnyFloat(Random& random) {
  switch (random.Uniform(8)) {
    case 0:
      return 0.0f;
    case 1:
      return std::numeric_limits<float>::infinity();
    case 2:
      return std::ldexp(static_cast<float>(random.Double()),
                        static_cast<int>(random.Uniform(40)) - 30);
    default:
      return static_cast<float>(random.Double() * 4 - 2);
  }
}

uint16_t HalfBits(float f, RowType type) {
  uint8_t row[2];
  ScalarRowConverters().from_floats[static_cast<int>(type)](&f, 1, row);
  uint16_t bits;
  std::memcpy(&bits, row, 2);
  return bits;
}

TEST(RowConvertTest, HalvesRoundToNearestEven) {
  EXPECT_EQ(HalfBits(1.0f, RowType::kFp16), 0x3c00);
  EXPECT_EQ(HalfBits(-2.0f, RowType::kFp16), 0xc000);
  EXPECT_EQ(HalfBits(65504.0f, RowType::kFp16), 0x7bff);
  EXPECT_EQ(HalfBits(65519.0f, RowType::kFp16), 0x7bff);
  EXPECT_EQ(HalfBits(65520.0f, RowType::kFp16), 0x7c00);
  EXPECT_EQ(HalfBits(0x1p-24f, RowType::kFp16), 0x0001);
  EXPECT_EQ(HalfBits(0x1p-25f, RowType::kFp16), 0x0000);
  EXPECT_EQ(HalfBits(0x1.8p-24f, RowType::kFp16), 0x0002);
  EXPECT_EQ(HalfBits(1.0f + 0x1p-11f, RowType::kFp16), 0x3c00);
  EXPECT_EQ(HalfBits(1.0f + 0x3p-11f, RowType::kFp16), 0x3c02);
  EXPECT_EQ(HalfBits(1.0f, RowType::kBf16), 0x3f80);
  EXPECT_EQ(HalfBits(1.0f + 0x1p-8f, RowType::kBf16), 0x3f80);
  EXPECT_EQ(HalfBits(1.0f + 0x3p-8f, RowType::kBf16), 0x3f82);
}

TEST(RowConvertTest, EveryHalfSurvivesTheWayThroughFp32) {
  for (RowType type : {RowType::kFp16, RowType::kBf16}) {
    const uint32_t infinite = type == RowType::kFp16 ? 0x7c00 : 0x7f80;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      if ((bits & 0x7fff) > infinite) continue;  // NaN
      const uint16_t half = static_cast<uint16_t>(bits);
      float f;
      ScalarRowConverters().to_floats[static_cast<int>(type)](
          reinterpret_cast<const uint8_t*>(&half), 1, &f);
      ASSERT_EQ(HalfBits(f, type), half);
    }
  }
}

TEST(RowConvertTest, ToFloatsGivesTheSameBitsAtEveryAlignment) {
  const TestSeed seed(3);
  Random random(seed.value());
  const RowConverters& scalar = ScalarRowConverters();
  const RowConverters& best = BestRowConverters();
  for (int round = 0; round < 400; ++round) {
    const uint32_t dim = 1 + static_cast<uint32_t>(random.Uniform(150));
    const RowType type = kTypes[random.Uniform(4)];
    std::vector<uint8_t> row(RowWireBytes(type, dim) + 3);
    uint8_t* const from = row.data() + random.Uniform(4);
    if (type == RowType::kInt8) {
      for (uint32_t i = 0; i < dim; ++i) from[i] = static_cast<uint8_t>(random.Uniform(256));
      const float scale_bias[2] = {static_cast<float>(random.Double()),
                                   static_cast<float>(random.Double())};
      std::memcpy(from + dim, scale_bias, 8);
    } else {
      std::vector<float> values(dim);
      for (float& v : values) v = AnyFloat(random);
      scalar.from_floats[static_cast<int>(type)](values.data(), dim, from);
    }
    std::vector<float> expected(dim), got(dim), buffer(dim + 17, -1.0f);
    scalar.to_floats[static_cast<int>(type)](from, dim, expected.data());
    best.to_floats[static_cast<int>(type)](from, dim, got.data());
    ASSERT_EQ(0, std::memcmp(expected.data(), got.data(), 4 * dim))
        << "type " << static_cast<int>(type);
    const size_t shift = random.Uniform(16);
    best.to_floats_streaming[static_cast<int>(type)](from, dim, buffer.data() + shift);
    ASSERT_EQ(0, std::memcmp(expected.data(), buffer.data() + shift, 4 * dim));
    ASSERT_EQ(buffer[shift + dim], -1.0f);
    std::vector<uint8_t> copy(RowWireBytes(type, dim) + 64);
    best.copy_streaming(from, RowWireBytes(type, dim), copy.data() + shift);
    ASSERT_EQ(0, std::memcmp(from, copy.data() + shift, RowWireBytes(type, dim)));
  }
}

// Clients read exactly the bits that servers write (row_math/quantize.h).
TEST(RowConvertTest, Int8RowsOfAServerAreReadAsItReadsThem) {
  const TestSeed seed(5);
  Random random(seed.value());
  for (int round = 0; round < 200; ++round) {
    const uint32_t dim = 1 + static_cast<uint32_t>(random.Uniform(100));
    std::vector<float> values(dim), ours(dim), theirs(dim);
    const bool constant = random.OneIn(5), broken = random.OneIn(5);
    for (float& v : values) v = constant ? 0.3f : static_cast<float>(random.Double() * 4 - 2);
    if (broken) values[random.Uniform(dim)] = std::nanf("");
    std::vector<uint8_t> row(RowWireBytes(RowType::kInt8, dim));
    QuantizeRow<Fp32Codec>(reinterpret_cast<const uint8_t*>(values.data()), dim, row.data());
    DecodeRow(RowType::kInt8, row.data(), dim, theirs.data());
    for (const RowConverters* converters : {&ScalarRowConverters(), &BestRowConverters()}) {
      converters->to_floats[static_cast<int>(RowType::kInt8)](row.data(), dim, ours.data());
      for (uint32_t i = 0; i < dim; ++i) {
        if (broken) {
          ASSERT_TRUE(std::isnan(ours[i]) && std::isnan(theirs[i]));
        } else {
          ASSERT_EQ(ours[i], theirs[i]);
          ASSERT_NEAR(ours[i], values[i], 4.0f / 255 / 2 + 1e-6f);
          if (constant) {
            ASSERT_EQ(ours[i], 0.3f);
          }
        }
      }
    }
  }
}

TEST(RowConvertTest, FromFloatsGivesTheSameBitsAndFindsWhatIsNotFinite) {
  const TestSeed seed(4);
  Random random(seed.value());
  for (int round = 0; round < 400; ++round) {
    const uint32_t dim = 1 + static_cast<uint32_t>(random.Uniform(100));
    std::vector<float> values(dim), sum_a(dim), sum_b(dim);
    for (float& v : values) v = static_cast<float>(random.Double() * 4 - 2);
    const bool bad = random.OneIn(2);
    const float wrong[] = {std::nanf(""), std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity()};
    if (bad) values[random.Uniform(dim)] = wrong[random.Uniform(3)];
    for (int type = 0; type < 3; ++type) {
      std::vector<uint8_t> a(4 * dim), b(4 * dim);
      EXPECT_EQ(ScalarRowConverters().from_floats[type](values.data(), dim, a.data()), !bad);
      EXPECT_EQ(BestRowConverters().from_floats[type](values.data(), dim, b.data()), !bad);
      ASSERT_EQ(a, b) << "type " << type;
    }
    ScalarRowConverters().add(values.data(), dim, sum_a.data());
    BestRowConverters().add(values.data(), dim, sum_b.data());
    ASSERT_EQ(0, std::memcmp(sum_a.data(), sum_b.data(), 4 * dim));
  }
}

TEST(RowConvertTest, WhatOverflowsItsWireTypeIsNotFinite) {
  const float large = 70000.0f;
  uint8_t row[4];
  EXPECT_FALSE(BestRowConverters().from_floats[1](&large, 1, row));
  EXPECT_TRUE(BestRowConverters().from_floats[2](&large, 1, row));
}

}  // namespace row_convert_test
}  // namespace hotbed
