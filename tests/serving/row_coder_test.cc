#include "serving/rows/row_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "common/random.h"
#include "row_math/row_formats.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace row_coder_test {

constexpr RowFormatKind kKinds[] = {RowFormatKind::kFp32,    RowFormatKind::kFp16,
                                    RowFormatKind::kBf16,    RowFormatKind::kTbeInt8,
                                    RowFormatKind::kTbeInt4, RowFormatKind::kTbeInt2};

std::vector<float> RandomRow(uint32_t dim, Random* random) {
  std::vector<float> row(dim);
  const double size = std::pow(10.0, static_cast<double>(random->Uniform(7)) - 4);
  for (float& value : row) value = static_cast<float>((random->Double() - 0.5) * size);
  if (random->OneIn(8)) row.assign(dim, row[0]);
  if (random->OneIn(50)) row[random->Uniform(dim)] = INFINITY;
  return row;
}

uint32_t BitsOf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The format's bytes as written by the plain function, element by element in float64.
double TwinOf(RowFormatKind kind, const uint8_t* row, uint32_t i) {
  const auto half = [row](int at) {
    uint16_t bits = 0;
    std::memcpy(&bits, row + 2 * at, 2);
    return static_cast<double>(Fp16ToFloat(bits));
  };
  const auto bits = CodeBits(kind);
  if (bits != 0) {
    const uint32_t per_byte = 8 / bits;
    const uint32_t code = (row[4 + i / per_byte] >> (i % per_byte * bits)) & ((1u << bits) - 1);
    return static_cast<double>(code) * half(0) + half(1);
  }
  if (kind == RowFormatKind::kFp32) return Fp32Codec::Load(row, i);
  return kind == RowFormatKind::kFp16 ? Fp16Codec::Load(row, i) : Bf16Codec::Load(row, i);
}

TEST(RowCoderTest, RowsHaveTheBytesOfTheFormatAndReadAsTheTwin) {
  const TestSeed seed(823);
  Random random(seed.value());
  for (int round = 0; round < 2000; ++round) {
    const auto dim = static_cast<uint32_t>(1 + random.Uniform(130));
    const std::vector<float> row = RandomRow(dim, &random);
    const RowFormatKind kind = kKinds[random.Uniform(std::size(kKinds))];
    for (const RowLoops* loops : {&PlainRowLoops(), &BestRowLoops()}) {
      const RowCoder coder(kind, dim, *loops);
      std::vector<uint8_t> coded(coder.row_bytes()), plain(coder.row_bytes());
      const bool finite = coder.Encode(row.data(), coded.data());
      ASSERT_EQ(finite, EncodeRowFormat<Fp32Codec>({.kind = kind},
                                                   reinterpret_cast<const uint8_t*>(row.data()),
                                                   dim, plain.data()));
      ASSERT_EQ(coded, plain);
      std::vector<float> read(dim);
      coder.Decode(coded.data(), read.data());
      for (uint32_t i = 0; i < dim; ++i) {
        const double twin = TwinOf(kind, coded.data(), i);
        if (std::isnan(twin)) {
          ASSERT_TRUE(std::isnan(read[i]));
        } else {
          ASSERT_EQ(BitsOf(read[i]), BitsOf(static_cast<float>(twin))) << "element " << i;
        }
      }
    }
  }
}

TEST(RowCoderTest, AnswersAreTheReadRowInTheTypeOfTheWire) {
  const TestSeed seed(824);
  Random random(seed.value());
  for (const RowFormatKind kind : kKinds) {
    for (const RowType type : {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8}) {
      const uint32_t dim = 67;
      const RowCoder coder(kind, dim);
      std::vector<float> row = RandomRow(dim, &random);
      std::vector<uint8_t> coded(coder.row_bytes()), answer(RowWireBytes(type, dim));
      if (!coder.Encode(row.data(), coded.data())) continue;
      std::vector<float> read(dim), scratch(dim), back(dim);
      coder.Decode(coded.data(), read.data());
      coder.Answer(coded.data(), type, scratch.data(), answer.data());
      std::vector<uint8_t> expected(answer.size());
      const auto* const bytes = reinterpret_cast<const uint8_t*>(read.data());
      switch (type) {
        case RowType::kFp32:
          std::memcpy(expected.data(), bytes, expected.size());
          break;
        case RowType::kFp16:
          ConvertRow<Fp32Codec, Fp16Codec>(bytes, dim, expected.data());
          break;
        case RowType::kBf16:
          ConvertRow<Fp32Codec, Bf16Codec>(bytes, dim, expected.data());
          break;
        case RowType::kInt8:
          QuantizeRow<Fp32Codec>(bytes, dim, expected.data());
          break;
      }
      EXPECT_EQ(answer, expected);
    }
  }
}

TEST(RowCoderTest, AnInt8RowOfDim64Takes68Bytes) {
  EXPECT_EQ(RowCoder(RowFormatKind::kTbeInt8, 64).row_bytes(), 68u);
  EXPECT_EQ(RowCoder(RowFormatKind::kTbeInt4, 64).row_bytes(), 36u);
  EXPECT_EQ(RowCoder(RowFormatKind::kTbeInt2, 64).row_bytes(), 20u);
}

}  // namespace row_coder_test
}  // namespace hotbed
