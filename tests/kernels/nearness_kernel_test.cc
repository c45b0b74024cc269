// RankRows of every instruction set against the plain formulas (nearness_twin.h), bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/random.h"
#include "row_math/half.h"
#include "row_math/line_vectors.h"
#include "row_math/nearness.h"
#include "server/kernels/cpu_kernels.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/nearness_twin.h"

namespace hotbed {
namespace nearness_kernel_test {

constexpr RowMetric kMetrics[] = {RowMetric::kDot, RowMetric::kCosine, RowMetric::kL2};
constexpr WeightType kTypes[] = {WeightType::kFp32, WeightType::kFp16, WeightType::kBf16};

// The element as it is stored at `to`; what reads back.
float Store(WeightType type, float value, uint8_t* to, uint32_t i) {
  switch (type) {
    case WeightType::kFp32:
      Fp32Codec::Store(to, i, value);
      return value;
    case WeightType::kFp16:
      Fp16Codec::Store(to, i, value);
      return Fp16ToFloat(FloatToFp16(value));
    case WeightType::kBf16:
      Bf16Codec::Store(to, i, value);
      return Bf16ToFloat(FloatToBf16(value));
  }
  return 0;
}

// Values of many magnitudes, zeros and, seldom, such that are not finite.
float AnyValue(Random* random) {
  constexpr float kOdd[] = {0.0f,
                            -0.0f,
                            1e-40f,
                            3e38f,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  if (random->Uniform(500) == 0) return kOdd[random->Uniform(6)];
  const auto bits = static_cast<int>(random->Uniform(30)) - 15;
  const float part = static_cast<float>(random->Uniform(1 << 24)) / (1 << 24) - 0.5f;
  return random->Uniform(10) == 0 ? 0.0f : std::ldexp(part, bits);
}

bool SameBits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(a)) == 0;
}

struct Rows {
  std::vector<uint8_t> stored;
  uint64_t stride = 0;
  std::vector<std::vector<float>> values;

  Rows(WeightType type, uint32_t dim, uint32_t count, Random* random) {
    stride = BytesPerWeight(type) * dim + random->Uniform(20);
    stored.resize(stride * count + 1);
    for (uint32_t r = 0; r < count; ++r) {
      std::vector<float>& row = values.emplace_back();
      const bool zero = random->Uniform(20) == 0;
      for (uint32_t i = 0; i < dim; ++i) {
        row.push_back(Store(type, zero ? 0.0f : AnyValue(random), &stored[stride * r + 1], i));
      }
    }
  }
  const uint8_t* first() const { return &stored[1]; }  // at an odd address
};

std::vector<float> AnyVector(uint32_t dim, Random* random) {
  std::vector<float> vector(dim);
  const bool zero = random->Uniform(10) == 0;
  for (float& element : vector) {
    do {
      element = zero ? 0.0f : AnyValue(random);
    } while (!std::isfinite(element));
  }
  return vector;
}

TEST(NearnessKernelTest, EverySetHasTheBitsOfTheFormulas) {
  const TestSeed seed(21);
  Random random(seed.value());
  const CpuKernelSets sets = AvailableCpuKernelSets();
  for (int round = 0; round < 120; ++round) {
    const auto dim = static_cast<uint32_t>(1 + random.Uniform(round % 4 == 0 ? 300 : 40));
    const WeightType type = kTypes[random.Uniform(3)];
    const Rows rows(type, dim, 30, &random);
    const std::vector<float> vector = AnyVector(dim, &random);
    std::vector<double> wide((dim + 7) / 8 * 8, 0.0);
    std::copy(vector.begin(), vector.end(), wide.begin());
    std::vector<double> squares;
    for (const float q : vector) squares.push_back(static_cast<double>(q) * q);
    for (const RowMetric metric : kMetrics) {
      for (int s = 0; s < sets.count; ++s) {
        uint32_t picks[30];
        double scores[30];
        RankBatch batch{.rows = rows.first(),
                        .stride = rows.stride,
                        .count = 30,
                        .dim = dim,
                        .weight_type = type,
                        .metric = metric,
                        .vector = wide.data()};
        batch.norm = std::sqrt(JoinedTwin(squares));
        batch.floor = std::numeric_limits<double>::quiet_NaN();  // picks all
        batch.picks = picks;
        batch.scores = scores;
        sets.sets[s]->rank_rows(&batch);
        ASSERT_EQ(batch.picked, 30u);
        for (uint32_t r = 0; r < 30; ++r) {
          const double want = NearnessTwin(rows.values[r], vector, metric);
          EXPECT_EQ(picks[r], r);
          EXPECT_TRUE(SameBits(scores[r], want))
              << sets.sets[s]->name << ", metric " << int(metric) << ", type " << int(type)
              << ", dim " << dim << ": " << scores[r] << ", by the formula " << want;
        }
      }
    }
  }
}

// Floors that rows just reach: a first look in fp32 whose bound is too small would lose them.
TEST(NearnessKernelTest, AFirstLookLeavesNoRowOut) {
  const TestSeed seed(22);
  Random random(seed.value());
  const CpuKernelSets sets = AvailableCpuKernelSets();
  constexpr uint32_t kRows = 40;
  for (int round = 0; round < 90; ++round) {
    const uint32_t some = static_cast<uint32_t>(1 + random.Uniform(300));
    const uint32_t dim = round % 3 == 0 ? 64 : round % 3 == 1 ? 128 : some;
    const WeightType type = kTypes[random.Uniform(3)];
    const Rows rows(type, dim, kRows, &random);
    const std::vector<float> vector = AnyVector(dim, &random);
    LineVectors<double> wide(1, dim);
    LineVectors<float> floats(1, dim);
    std::copy(vector.begin(), vector.end(), wide[0]);
    const FloatQuery quick = MakeFloatQuery(vector.data(), dim, floats[0]);
    std::vector<double> scores;
    for (const auto& row : rows.values) {
      scores.push_back(NearnessTwin(row, vector, RowMetric::kDot));
    }
    for (const double floor : scores) {
      if (std::isnan(floor)) continue;
      std::vector<uint32_t> wanted;
      for (uint32_t r = 0; r < kRows; ++r) {
        if (!(scores[r] < floor)) wanted.push_back(r);
      }
      for (int s = 0; s < sets.count; ++s) {
        uint32_t picks[kRows];
        double found[kRows];
        RankBatch batch{.rows = rows.first(),
                        .stride = rows.stride,
                        .count = kRows,
                        .dim = dim,
                        .weight_type = type,
                        .metric = RowMetric::kDot,
                        .vector = wide[0]};
        batch.quick_floats = &quick;
        batch.floor = floor;
        batch.picks = picks;
        batch.scores = found;
        sets.sets[s]->rank_rows(&batch);
        ASSERT_EQ(std::vector<uint32_t>(picks, picks + batch.picked), wanted)
            << sets.sets[s]->name << ", type " << int(type) << ", dim " << dim << ", floor "
            << floor;
        for (uint32_t p = 0; p < batch.picked; ++p) {
          ASSERT_TRUE(SameBits(found[p], scores[picks[p]]));
        }
      }
    }
  }
}

TEST(NearnessKernelTest, PassesOverWhatIsBehindTheFloorAndKeepsEqualsAndNoNumbers) {
  const CpuKernelSets sets = AvailableCpuKernelSets();
  const std::vector<float> column = {1, 3, 2, std::numeric_limits<float>::quiet_NaN(), 5};
  const double vector[8] = {1};
  for (int s = 0; s < sets.count; ++s) {
    uint32_t picks[5];
    double scores[5];
    RankBatch batch{.rows = reinterpret_cast<const uint8_t*>(column.data()),
                    .stride = 4,
                    .count = 5,
                    .dim = 1,
                    .weight_type = WeightType::kFp32,
                    .metric = RowMetric::kDot,
                    .vector = vector};
    batch.floor = 3;
    batch.picks = picks;
    batch.scores = scores;
    sets.sets[s]->rank_rows(&batch);
    ASSERT_EQ(batch.picked, 3u) << sets.sets[s]->name;
    EXPECT_EQ(std::vector<uint32_t>(picks, picks + 3), (std::vector<uint32_t>{1, 3, 4}));
    batch.metric = RowMetric::kL2;
    batch.floor = 1;
    sets.sets[s]->rank_rows(&batch);
    ASSERT_EQ(batch.picked, 3u) << sets.sets[s]->name;
    EXPECT_EQ(std::vector<uint32_t>(picks, picks + 3), (std::vector<uint32_t>{0, 2, 3}));
  }
}

}  // namespace nearness_kernel_test
}  // namespace hotbed
