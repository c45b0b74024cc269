#include "row_math/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/random.h"
#include "row_math/quantize.h"

namespace hotbed {
namespace half_test {

// The compiler's own conversion, correctly rounded by the language.
uint16_t ReferenceFp16(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
float ReferenceFloat(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

TEST(HalfTest, EveryFp16Value) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const bool nan = (h & 0x7fff) > 0x7c00;
    const float value = Fp16ToFloat(half);
    EXPECT_EQ(FloatBits(value), FloatBits(ReferenceFloat(half))) << std::hex << h;
    EXPECT_EQ(FloatToFp16(value), nan ? (h | 0x200) : h) << std::hex << h;
  }
}

TEST(HalfTest, EveryBf16Value) {
  for (uint32_t b = 0; b < 65536; ++b) {
    const bool nan = (b & 0x7fff) > 0x7f80;
    const float value = Bf16ToFloat(static_cast<uint16_t>(b));
    EXPECT_EQ(FloatBits(value), b << 16);
    EXPECT_EQ(FloatToBf16(value), nan ? (b | 0x40) : b) << std::hex << b;
  }
}

// Values at, just below and just above the middle between two neighbours, where rounding is
// decided.
TEST(HalfTest, RoundsToNearestEvenAtEveryMiddle) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const double low = Fp16ToFloat(static_cast<uint16_t>(h));
    const double high = h == 0x7bff ? 65536.0 : Fp16ToFloat(static_cast<uint16_t>(h + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const float below = std::nextafterf(middle, 0.0f);
    const float above = std::nextafterf(middle, 1e9f);
    for (float value : {middle, below, above}) {
      ASSERT_EQ(FloatToFp16(value), ReferenceFp16(value)) << value;
      ASSERT_EQ(FloatToFp16(-value), ReferenceFp16(-value)) << value;
    }
    EXPECT_EQ(FloatToFp16(middle), h % 2 == 0 ? h : h + 1);
  }
}

TEST(HalfTest, Bf16RoundsToNearestEvenAtEveryMiddle) {
  for (uint32_t b = 0; b < 0x7f80; ++b) {
    const uint32_t middle = (b << 16) | 0x8000;
    EXPECT_EQ(FloatToBf16(FloatFromBits(middle)), b % 2 == 0 ? b : b + 1);
    EXPECT_EQ(FloatToBf16(FloatFromBits(middle - 1)), b);
    EXPECT_EQ(FloatToBf16(FloatFromBits(middle + 1)), b + 1);
  }
}

TEST(HalfTest, RandomFloatsAgreeWithTheCompiler) {
  Random random(1);
  for (int i = 0; i < 2000000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random.Next());
    ASSERT_EQ(FloatToFp16(FloatFromBits(bits)), ReferenceFp16(FloatFromBits(bits))) << bits;
  }
}

TEST(QuantizeTest, Int8KeepsTheEndsAndIsWithinHalfAStep) {
  Random random(2);
  for (uint32_t dim : {1u, 3u, 64u, 100u}) {
    std::vector<float> row(dim);
    for (float& x : row) x = static_cast<float>(random.Double() * 4 - 1);
    std::vector<uint8_t> wire(RowWireBytes(RowType::kInt8, dim));
    QuantizeRow<Fp32Codec>(reinterpret_cast<const uint8_t*>(row.data()), dim, wire.data());
    std::vector<float> back(dim);
    DecodeRow(RowType::kInt8, wire.data(), dim, back.data());
    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    const float step = (*high - *low) / 255;
    for (uint32_t i = 0; i < dim; ++i) EXPECT_NEAR(back[i], row[i], step * 0.501f + 1e-6f);
    EXPECT_EQ(back[low - row.begin()], *low);
  }
}

TEST(QuantizeTest, TheBytesAreThoseOfFbgemm) {
  const float row[8] = {0, .5f, 1, -1, .25f, -.75f, .1f, -.3f};
  uint8_t wire[16];
  EXPECT_TRUE(QuantizeRow<Fp32Codec>(reinterpret_cast<const uint8_t*>(row), 8, wire));
  EXPECT_EQ(std::vector<int>(wire, wire + 8),
            (std::vector<int>{128, 191, 255, 0, 159, 32, 140, 89}));
  EXPECT_EQ(Fp32Codec::Load(wire + 8, 0), .00784313772f);
  EXPECT_EQ(Fp32Codec::Load(wire + 8, 1), -1.0f);
}

TEST(QuantizeTest, ABrokenRowReadsAsNaN) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    const float row[4] = {1.0f, bad, 2.0f, 3.0f};
    uint8_t wire[12];
    QuantizeRow<Fp32Codec>(reinterpret_cast<const uint8_t*>(row), 4, wire);
    float back[4];
    DecodeRow(RowType::kInt8, wire, 4, back);
    for (float x : back) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(QuantizeTest, AConstantRowIsExact) {
  const float row[3] = {0.37f, 0.37f, 0.37f};
  uint8_t wire[11];
  QuantizeRow<Fp32Codec>(reinterpret_cast<const uint8_t*>(row), 3, wire);
  float back[3];
  DecodeRow(RowType::kInt8, wire, 3, back);
  for (float x : back) EXPECT_EQ(x, 0.37f);
  EXPECT_EQ(wire[0], 0);
  EXPECT_EQ(Fp32Codec::Load(wire + 3, 0), 0.0f);
}

}  // namespace half_test
}  // namespace hotbed
