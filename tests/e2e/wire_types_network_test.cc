// Rows and gradients of every wire type, of whole and of sliced tables, over the network, with the
// rounding of their formats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/common/test_seed.h"
#include "tests/e2e/cluster_fixture.h"

namespace hotbed {
namespace wire_types_network_test {

using WireTypesNetworkTest = ClusterTest;

// `value` rounded to nearest, ties to even, with the given bits of mantissa.
float Rounded(float value, int mantissa_bits, int exponent_min) {
  if (value == 0) return value;
  const int exponent = std::max(std::ilogb(value), exponent_min);
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  return static_cast<float>(std::nearbyint(value / unit) * unit);
}
float RoundedTo(RowType type, float value) {
  return type == RowType::kFp16   ? Rounded(value, 10, -14)
         : type == RowType::kBf16 ? Rounded(value, 7, -126)
                                  : value;
}

// Row-wise int8 over the elements of one slice, encoded and decoded.
void ThroughInt8(float* row, uint32_t columns) {
  const float low = *std::min_element(row, row + columns);
  const float range = *std::max_element(row, row + columns) - low;
  for (uint32_t c = 0; c < columns; ++c) {
    const float inverse = range > 0 ? 255.0f / range : 0.0f;
    const float q = std::nearbyint((row[c] - low) * inverse);
    const float scaled = q * (range > 0 ? range / 255.0f : 1.0f);
    row[c] = scaled + low;
  }
}

float FloatOf(RowType type, const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  if (type == RowType::kBf16) {
    const uint32_t bits = uint32_t{half} << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  const int exponent = half >> 10 & 31;
  const double mantissa = (half & 1023) + (exponent > 0 ? 1024 : 0);
  const double magnitude = std::ldexp(mantissa, std::max(exponent, 1) - 25);
  return static_cast<float>((half & 0x8000) != 0 ? -magnitude : magnitude);
}

TEST_F(WireTypesNetworkTest, RowsOfEveryWireTypeAreRoundedAsTheirFormatSays) {
  const TestSeed seed(20261126);
  Random random(seed.value());
  constexpr uint32_t kDim = 29;
  const std::unique_ptr<Client> client = Connect();
  for (const uint32_t slices : {1u, 4u}) {
    for (const WeightType stored : {WeightType::kFp32, WeightType::kFp16, WeightType::kBf16}) {
      TableOptions options = Options(absl::StrCat("rows-", slices, "-", static_cast<int>(stored)),
                                     kDim, OptimizerKind::kSgd, slices);
      options.weight_type = stored;
      options.row_statistics = RowStatistics::kSlice;
      const Table* table = Create(client.get(), options);
      std::vector<uint64_t> ids;
      for (int i = 0; i < 500; ++i) ids.push_back(random.Uniform(9000));
      const std::vector<float> exact = Rows(client.get(), table, ids);
      for (const RowType wire : {RowType::kFp16, RowType::kBf16}) {
        const std::vector<float> rows = Rows(client.get(), table, ids, wire);
        std::vector<uint8_t> raw(ids.size() * RowWireBytes(wire, kDim));
        const PullFeature feature{table, ids, raw.data(), wire};
        PullOptions pull;
        pull.wire_type = &wire;
        ASSERT_TRUE(client->Pull({&feature, 1}, pull).Wait().ok());
        for (size_t i = 0; i < exact.size(); ++i) {
          ASSERT_EQ(rows[i], RoundedTo(wire, exact[i])) << "element " << i << ": " << exact[i];
          ASSERT_EQ(FloatOf(wire, &raw[2 * i]), rows[i]) << "element " << i;
        }
      }
      std::vector<float> expected = exact;
      for (size_t i = 0; i < ids.size(); ++i) {
        for (uint32_t s = 0; s < slices; ++s) {
          const ColumnRange columns = SliceColumns(kDim, slices, s);
          ThroughInt8(&expected[i * kDim + columns.first], columns.columns());
        }
      }
      EXPECT_EQ(Different(Rows(client.get(), table, ids, RowType::kInt8), expected), 0u);
    }
  }
}

TEST_F(WireTypesNetworkTest, Int8RowsOfSlicesArriveAsFloatsAndOnlyOnRequest) {
  const std::unique_ptr<Client> client = Connect();
  const Table* whole =
      Create(client.get(), Options("int8-row", 16, OptimizerKind::kSgd, 2));  // statistics: row
  TableOptions options = Options("int8-slice", 16, OptimizerKind::kSgd, 2);
  options.row_statistics = RowStatistics::kSlice;
  const Table* sliced = Create(client.get(), options);
  const RowType int8 = RowType::kInt8;
  PullOptions pull;
  pull.wire_type = &int8;
  const uint64_t id = 3;
  float row[16];
  PullFeature feature{whole, {&id, 1}, row};
  const absl::Status refused = client->Pull({&feature, 1}, pull).Wait();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("row_statistics=slice"), std::string::npos) << refused;
  uint8_t raw[64];
  feature = {sliced, {&id, 1}, raw, RowType::kInt8};
  const absl::Status as_it_travels = client->Pull({&feature, 1}, pull).Wait();
  EXPECT_EQ(as_it_travels.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(as_it_travels.message().find("take rows as fp32"), std::string::npos) << as_it_travels;
}

// SGD at a rate of 1 on zeros: the row is the negated gradient as it arrived.
TEST_F(WireTypesNetworkTest, GradientsOfEveryWireTypeAreSummedInFp32AndRoundedOnce) {
  const TestSeed seed(20261127);
  Random random(seed.value());
  constexpr uint32_t kDim = 21;
  for (const RowType wire : {RowType::kFp32, RowType::kFp16, RowType::kBf16}) {
    ClientOptions connect;
    connect.push_type = wire;
    const std::unique_ptr<Client> client = Connect(connect);
    for (const uint32_t slices : {1u, 5u}) {
      TableOptions options = Options(absl::StrCat("push-", slices, "-", static_cast<int>(wire)),
                                     kDim, OptimizerKind::kSgd, slices);
      options.initializer = {InitializerKind::kZero};
      options.optimizer.learning_rate = 1.0f;
      const Table* table = Create(client.get(), options);
      const std::vector<Feature> batch = Batch(random, kDim);
      std::vector<PushFeature> features;
      std::vector<float> sums(9000 * kDim);
      std::vector<uint8_t> seen(9000);
      for (const Feature& f : batch) {
        features.push_back({table, f.ids, f.gradients.data()});
        for (size_t i = 0; i < f.ids.size(); ++i) {
          for (uint32_t c = 0; c < kDim; ++c) {
            float& sum = sums[f.ids[i] * kDim + c];
            const float g = f.gradients[i * kDim + c];
            sum = seen[f.ids[i]] != 0 ? sum + g : g;
          }
          seen[f.ids[i]] = 1;
        }
      }
      const PushResult pushed = client->Push(1, features).Wait();
      ASSERT_TRUE(pushed.status.ok()) << pushed.status;
      for (float& sum : sums) sum = 0.0f - RoundedTo(wire, sum);
      EXPECT_EQ(Different(Rows(client.get(), table, AllIds(table)), sums), 0u)
          << slices << " slices, wire type " << static_cast<int>(wire);
    }
  }
}

}  // namespace wire_types_network_test
}  // namespace hotbed
