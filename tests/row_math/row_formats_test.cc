// Row formats against vectors taken from upstream's own code, and against twins that follow
// upstream's text without a thought for speed.
#include "row_math/row_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace row_formats_test {

using Bytes = std::vector<uint8_t>;
using Kind = RowFormatKind;

constexpr Kind kAllKinds[] = {Kind::kFp32,      Kind::kFp16,      Kind::kBf16,    Kind::kFused8Bit,
                              Kind::kFused4Bit, Kind::kFused2Bit, Kind::kTbeInt8, Kind::kTbeInt4,
                              Kind::kTbeInt2,   Kind::kFp8,       Kind::kNfp8};
const std::vector<float> kRow = {0, .5f, 1, -1, .25f, -.75f, .1f, -.3f};

std::string Hex(const Bytes& bytes) {
  std::string text;
  for (uint8_t byte : bytes) absl::StrAppend(&text, absl::StrFormat("%02x", byte));
  return text;
}

Bytes Encode(const RowFormat& format, const std::vector<float>& row, bool* finite = nullptr) {
  const auto dim = static_cast<uint32_t>(row.size());
  Bytes out(RowFormatBytes(format, dim) + 1, 0xa5);
  const bool result = EncodeRowFormat<Fp32Codec>(
      format, reinterpret_cast<const uint8_t*>(row.data()), dim, out.data());
  if (finite != nullptr) *finite = result;
  EXPECT_EQ(out.back(), 0xa5) << "one byte too many";
  out.pop_back();
  return out;
}

std::vector<float> Decode(const RowFormat& format, const Bytes& row, uint32_t dim) {
  std::vector<float> out(dim);
  DecodeRowFormat(format, row.data(), dim, out.data());
  return out;
}

uint16_t HalfBits(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}

float HalfValue(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

template <typename T>
void Append(Bytes* bytes, T value) {
  const auto* first = reinterpret_cast<const uint8_t*>(&value);
  bytes->insert(bytes->end(), first, first + sizeof(value));
}

// --- vectors

TEST(RowFormatsTest, TheVectorsOfUpstream) {
  EXPECT_EQ(Hex(Encode({Kind::kFused8Bit}, kRow)), "80bfff009f208c598180003c000080bf");
  EXPECT_EQ(Hex(Encode({Kind::kFused4Bit}, kRow)), "b80f2958443000bc");
  EXPECT_EQ(Hex(Encode({Kind::kFused2Bit}, kRow)), "3a62553900bc");
  EXPECT_EQ(Hex(Encode({Kind::kFused4Bit}, {.3f, .3f, .3f, .3f})), "ffff3780cd34");
  EXPECT_EQ(Hex(Encode({Kind::kFused8Bit}, {.3f, .3f})), "0000000000009a99993e");
  EXPECT_EQ(Hex(Encode({Kind::kFp32}, {1.0f})), "0000803f");
  EXPECT_EQ(Hex(Encode({Kind::kFp16}, {1.0f, -2.0f})), "003c00c0");
  EXPECT_EQ(Hex(Encode({Kind::kBf16}, {1.0f, -2.0f})), "803f00c0");
}

TEST(RowFormatsTest, TbeRowsHaveTheirParametersInFrontOrBehindAndArePadded) {
  EXPECT_EQ(Hex(Encode({Kind::kTbeInt4}, kRow)), "443000bcb80f2958");
  EXPECT_EQ(Hex(Encode({Kind::kTbeInt4, 16}, kRow)), "443000bcb80f29580000000000000000");
  EXPECT_EQ(Hex(Encode({Kind::kTbeInt4, 1, true}, kRow)), "b80f2958443000bc");
  EXPECT_EQ(Hex(Encode({Kind::kTbeInt2}, kRow)), "553900bc3a62");
  EXPECT_EQ(Hex(Encode({Kind::kTbeInt8}, kRow)), "042000bc80bfff009f208c59");
  EXPECT_EQ(Hex(Encode({Kind::kTbeInt8, 1, true}, kRow)), "80bfff009f208c59042000bc");
  EXPECT_EQ(RowFormatBytes({Kind::kTbeInt8, 16}, 128), 144u);
  EXPECT_EQ(RowFormatBytes({Kind::kTbeInt2, 16}, 64), 32u);
  EXPECT_EQ(RowFormatBytes({Kind::kFused8Bit}, 64), 72u);
  EXPECT_EQ(RowFormatBytes({Kind::kFused4Bit}, 7), 8u);
  EXPECT_EQ(RowFormatBytes({Kind::kFused2Bit}, 5), 6u);
  EXPECT_EQ(RowFormatBytes({Kind::kFp8, 16}, 17), 32u);
}

TEST(RowFormatsTest, UnusedBitsOfOddDimsAreZero) {
  EXPECT_EQ(Hex(Encode({Kind::kFused4Bit}, {0, 15, 15})), "f00f003c0000");
  EXPECT_EQ(Hex(Encode({Kind::kFused2Bit}, {0, 3, 3, 3, 3})), "fc03003c0000");
}

// The bias 0.3 is rounded up to fp16, so the scale is a negative subnormal.
TEST(RowFormatsTest, ANegativeSubnormalScaleIsHonoured) {
  for (const Kind kind : {Kind::kFused4Bit, Kind::kFused2Bit, Kind::kTbeInt4, Kind::kTbeInt2}) {
    const std::vector<float> row(9, .3f);
    for (const float value : Decode({kind}, Encode({kind}, row), 9)) {
      EXPECT_NEAR(value, .3f, 1e-6f) << "without the scale it is off by 4.9e-5";
    }
  }
}

TEST(RowFormatsTest, ABrokenRowIsToldAndReadsAsNaN) {
  for (const Kind kind : kAllKinds) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      bool finite = true;
      const Bytes row = Encode({kind}, {1, bad, 2, 3, 4}, &finite);
      EXPECT_FALSE(finite) << static_cast<int>(kind);
      if (CodeBits(kind) == 0) continue;  // each element stands for itself
      for (const float x : Decode({kind}, row, 5)) EXPECT_TRUE(std::isnan(x));
    }
    bool finite = false;
    Encode({kind}, kRow, &finite);
    EXPECT_TRUE(finite) << static_cast<int>(kind);
  }
  for (const Kind kind : {Kind::kFp16, Kind::kFused8Bit, Kind::kFused4Bit, Kind::kTbeInt8}) {
    bool finite = true;
    Encode({kind}, {-3e38f, 3e38f}, &finite);
    EXPECT_FALSE(finite) << static_cast<int>(kind);
  }
}

TEST(RowFormatsTest, WhatIsOutOfRangeIsNamed) {
  EXPECT_EQ(RowFormatError({}), nullptr);
  EXPECT_EQ(RowFormatError({Kind::kFp8, 128, false, 6, 126}), nullptr);
  const auto error = [](const RowFormat& format) { return std::string(RowFormatError(format)); };
  EXPECT_THAT(error({static_cast<Kind>(11)}), testing::HasSubstr("kind"));
  EXPECT_THAT(error({Kind::kFp32, 0}), testing::HasSubstr("alignment"));
  EXPECT_THAT(error({Kind::kFp32, 24}), testing::HasSubstr("alignment"));
  EXPECT_THAT(error({Kind::kFp8, 1, false, 1, 7}), testing::HasSubstr("exponent_bits"));
  EXPECT_THAT(error({Kind::kFp8, 1, false, 7, 7}), testing::HasSubstr("exponent_bits"));
  EXPECT_THAT(error({Kind::kFp8, 1, false, 4, 127}), testing::HasSubstr("exponent_bias"));
}

// --- twins

// FloatOrHalfToFused8BitRowwiseQuantizedSBFloatRef.
Bytes Twin8Bit(const std::vector<float>& row, float* scale, float* bias) {
  const float low = *std::min_element(row.begin(), row.end());
  const float range = *std::max_element(row.begin(), row.end()) - low;
  *scale = range / 255.0f;
  *bias = low;
  const float inverse = 255.0f / (range + 1e-8f);
  Bytes codes;
  for (const float x : row) codes.push_back(static_cast<uint8_t>(std::lrintf((x - low) * inverse)));
  return codes;
}

// FloatOrHalfToFusedNBitRowwiseQuantizedSBHalfRef, one bit of a code after the other.
Bytes TwinNBit(const std::vector<float>& row, int bits, uint16_t* scale16, uint16_t* bias16) {
  *bias16 = HalfBits(*std::min_element(row.begin(), row.end()));
  const float low = HalfValue(*bias16);
  const float range = *std::max_element(row.begin(), row.end()) - low;
  const int last = (1 << bits) - 1;
  float scale = HalfValue(HalfBits(range == 0 ? 1.0f : range / static_cast<float>(last)));
  if (scale == 0) scale = 1.0f;
  float inverse = 1.0f / scale;
  if (std::isinf(inverse)) scale = inverse = 1.0f;
  *scale16 = HalfBits(scale);
  Bytes codes((row.size() * bits + 7) / 8);
  for (size_t i = 0; i < row.size(); ++i) {
    const int code =
        std::max(0, std::min(static_cast<int>(std::lrintf((row[i] - low) * inverse)), last));
    for (int b = 0; b < bits; ++b) {
      const size_t at = i * bits + b;
      codes[at / 8] = static_cast<uint8_t>(codes[at / 8] | ((code >> b & 1) << at % 8));
    }
  }
  return codes;
}

std::vector<float> RandomRow(Random* random, uint32_t dim) {
  const double centre = random->OneIn(3) ? 0 : random->Double() * 20 - 10;
  const double width = std::ldexp(1.0, static_cast<int>(random->Uniform(60)) - 50);
  const bool constant = random->OneIn(10), zeros = random->OneIn(8);
  std::vector<float> row(dim);
  for (float& x : row) {
    x = static_cast<float>(centre + (constant ? 0.1 : (random->Double() - 0.5) * width));
    if (zeros && random->OneIn(2)) x = random->OneIn(2) ? 0.0f : -0.0f;
    if (zeros && x < 0) x = -x;  // so that a zero is the smallest
  }
  return row;
}

TEST(RowFormatsTest, RandomRowsAreThoseOfTheTwins) {
  const TestSeed seed(11);
  Random random(seed.value());
  for (int round = 0; round < 20000; ++round) {
    const uint32_t dim = 1 + static_cast<uint32_t>(random.Uniform(100));
    const std::vector<float> row = RandomRow(&random, dim);
    float scale, bias;
    const Bytes codes8 = Twin8Bit(row, &scale, &bias);
    Bytes fused = codes8, tbe;
    Append(&fused, scale);
    Append(&fused, bias);
    Append(&tbe, HalfBits(scale));
    Append(&tbe, HalfBits(bias));
    tbe.insert(tbe.end(), codes8.begin(), codes8.end());
    ASSERT_EQ(Hex(Encode({Kind::kFused8Bit}, row)), Hex(fused));
    ASSERT_EQ(Hex(Encode({Kind::kTbeInt8}, row)), Hex(tbe));
    for (const int bits : {4, 2}) {
      uint16_t scale16, bias16;
      const Bytes codes = TwinNBit(row, bits, &scale16, &bias16);
      fused = codes;
      tbe.clear();
      for (Bytes* to : {&fused, &tbe}) {
        Append(to, scale16);
        Append(to, bias16);
      }
      tbe.insert(tbe.end(), codes.begin(), codes.end());
      ASSERT_EQ(Hex(Encode({bits == 4 ? Kind::kFused4Bit : Kind::kFused2Bit}, row)), Hex(fused));
      tbe.resize((tbe.size() + 15) / 16 * 16);
      ASSERT_EQ(Hex(Encode({bits == 4 ? Kind::kTbeInt4 : Kind::kTbeInt2, 16}, row)), Hex(tbe));
    }
  }
}

// A code's value by the definition of its layout.
double Fp8Value(int code, int exponent_bits, int bias) {
  const int mantissa_bits = 7 - exponent_bits;
  const int exponent = (code & 0x7f) >> mantissa_bits;
  const double mantissa = std::ldexp(code & ((1 << mantissa_bits) - 1), -mantissa_bits);
  const double value =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, exponent - bias);
  return code < 128 ? value : -value;
}

// The nearest of the codes 0..last, the even one of two equally near ones; the sign apart.
int NearestFp8(float value, int exponent_bits, int bias, int last) {
  int best = 0;
  for (int code = 1; code <= last; ++code) {
    const double better = std::abs(Fp8Value(best, exponent_bits, bias) - std::abs(value)) -
                          std::abs(Fp8Value(code, exponent_bits, bias) - std::abs(value));
    if (better > 0 || (better == 0 && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(value) ? 128 : 0);
}

TEST(RowFormatsTest, EveryFp8CodeSurvivesAndHasItsValue) {
  for (int e = 2; e <= 6; ++e) {
    for (const int bias : {0, 4, 7, 15, 31, 126}) {
      const int last = ((1 << e) - 1) * (1 << (7 - e)) - 1;  // the highest exponent is not written
      const RowFormat format = {Kind::kFp8, 1, false, static_cast<uint8_t>(e),
                                static_cast<uint8_t>(bias)};
      EXPECT_EQ(Fp8Max(e, bias), Fp8Value(last, e, bias));
      for (int code = 0; code < 256; ++code) {
        const auto value = static_cast<float>(Fp8Value(code, e, bias));
        const std::vector<float> got = Decode(format, {static_cast<uint8_t>(code)}, 1);
        ASSERT_EQ(got[0], value) << e << " " << bias << " " << code;
        const int written = (code & 127) <= last ? code : last | (code & 128);
        ASSERT_EQ(Encode(format, {code == 128 ? -0.0f : value})[0], written);
      }
      EXPECT_EQ(Encode(format, {INFINITY})[0], last);
      EXPECT_EQ(Encode(format, {-3e38f})[0], last | 128);
    }
  }
}

TEST(RowFormatsTest, Fp8RoundsToTheNearestCodeAndTiesToEven) {
  const TestSeed seed(12);
  Random random(seed.value());
  for (const auto& [e, bias] : {std::pair(4, 7), {4, 15}, {5, 15}, {2, 1}, {6, 31}, {3, 0}}) {
    const int exponent_bits = e, exponent_bias = bias;  // a lambda may not name bindings
    const int last = ((1 << e) - 1) * (1 << (7 - e)) - 1;
    const RowFormat format = {Kind::kFp8, 1, false, static_cast<uint8_t>(e),
                              static_cast<uint8_t>(bias)};
    const auto check = [&](float value) {
      ASSERT_EQ(Encode(format, {value})[0], NearestFp8(value, exponent_bits, exponent_bias, last))
          << value;
    };
    for (int code = 0; code < last; ++code) {
      const auto middle =
          static_cast<float>((Fp8Value(code, e, bias) + Fp8Value(code + 1, e, bias)) / 2);
      for (const float x : {middle, std::nextafterf(middle, 0), std::nextafterf(middle, 1e30f)}) {
        check(x);
        check(-x);
      }
    }
    for (int i = 0; i < 300; ++i) {
      check(std::ldexp(static_cast<float>(random.Double() * 2 - 1),
                       static_cast<int>(random.Uniform(60)) - 40));
    }
  }
}

TEST(RowFormatsTest, Nfp8IsE4M3WithSaturation) {
  const RowFormat format = {Kind::kNfp8};
  const std::vector<float> row = {1, -1, 448, 464, 1e9f, -INFINITY, 0x1p-9f, 0x1p-10f, NAN, -0.0f};
  EXPECT_EQ(Hex(Encode(format, row)), "38b87e7e7efe01007f80");
  for (int code = 0; code < 256; ++code) {
    const float value = Decode(format, {static_cast<uint8_t>(code)}, 1)[0];
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, Fp8Value(code, 4, 7));
      EXPECT_EQ(Encode(format, {value})[0], code);
    }
  }
  for (float x = 0x1p-11f; x < 500; x *= 1.01f) {
    EXPECT_EQ(Encode(format, {x})[0], NearestFp8(x, 4, 7, 0x7e)) << x;
  }
}

// --- round trips

// Upstream's text: double(scale) * q + double(bias), to float.
TEST(RowFormatsTest, CodesAreReadWithOneRounding) {
  const TestSeed seed(15);
  Random random(seed.value());
  int rounded_twice = 0;
  for (int round = 0; round < 500; ++round) {
    const std::vector<float> row = RandomRow(&random, 40);
    const Bytes bytes = Encode({Kind::kFused8Bit}, row), half = Encode({Kind::kTbeInt4}, row);
    const std::vector<float> back = Decode({Kind::kFused8Bit}, bytes, 40),
                             back4 = Decode({Kind::kTbeInt4}, half, 40);
    float parameters[2];
    uint16_t half_parameters[2];
    std::memcpy(parameters, bytes.data() + 40, 8);
    std::memcpy(half_parameters, half.data(), 4);
    for (size_t i = 0; i < 40; ++i) {
      ASSERT_EQ(back[i], std::fma(static_cast<float>(bytes[i]), parameters[0], parameters[1]));
      rounded_twice += back[i] != static_cast<float>(bytes[i]) * parameters[0] + parameters[1];
      const int code = half[4 + i / 2] >> (i % 2 * 4) & 15;
      ASSERT_EQ(back4[i], std::fma(static_cast<float>(code), HalfValue(half_parameters[0]),
                                   HalfValue(half_parameters[1])));
    }
  }
  EXPECT_GT(rounded_twice, 100) << "the test must tell the two apart";
}

TEST(RowFormatsTest, WhatIsReadBackIsWithinHalfAScale) {
  const TestSeed seed(13);
  Random random(seed.value());
  for (int round = 0; round < 3000; ++round) {
    const uint32_t dim = 1 + static_cast<uint32_t>(random.Uniform(64));
    std::vector<float> row(dim);
    for (float& x : row) x = static_cast<float>(random.Double() * 6 - 3);
    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    for (const Kind kind : kAllKinds) {
      const uint32_t bits = CodeBits(kind);
      if (bits == 0) continue;
      const RowFormat format = {kind, static_cast<uint8_t>(random.OneIn(2) ? 16 : 1),
                                random.OneIn(2)};
      const std::vector<float> back = Decode(format, Encode(format, row), dim);
      const float codes = static_cast<float>((1u << bits) - 1);
      const float half = (*high - *low) / codes / 2;
      // fp16 keeps 11 bits of the bias and of the scale; the latter counts once a code.
      const float rounding =
          kind == Kind::kFused8Bit ? 2e-6f : 3 * 0x1p-11f + half * codes * 0x1p-9f;
      for (uint32_t i = 0; i < dim; ++i) ASSERT_NEAR(back[i], row[i], half + rounding);
    }
  }
}

TEST(RowFormatsTest, RowsStoredAsHalvesAreQuantizedByTheirValues) {
  const TestSeed seed(14);
  Random random(seed.value());
  for (int round = 0; round < 300; ++round) {
    const uint32_t dim = 1 + static_cast<uint32_t>(random.Uniform(80));
    std::vector<uint16_t> fp16(dim), bf16(dim);
    std::vector<float> of_fp16(dim), of_bf16(dim);
    for (uint32_t i = 0; i < dim; ++i) {
      fp16[i] = HalfBits(static_cast<float>(random.Double() - 0.5));
      of_fp16[i] = HalfValue(fp16[i]);
      of_bf16[i] = Bf16ToFloat(bf16[i] = FloatToBf16(of_fp16[i] * 3));
    }
    for (const Kind kind : kAllKinds) {
      const RowFormat format = {kind};
      Bytes out(RowFormatBytes(format, dim));
      EncodeRowFormat<Fp16Codec>(format, reinterpret_cast<uint8_t*>(fp16.data()), dim, out.data());
      ASSERT_EQ(Hex(out), Hex(Encode(format, of_fp16)));
      EncodeRowFormat<Bf16Codec>(format, reinterpret_cast<uint8_t*>(bf16.data()), dim, out.data());
      ASSERT_EQ(Hex(out), Hex(Encode(format, of_bf16)));
    }
  }
}

}  // namespace row_formats_test
}  // namespace hotbed
