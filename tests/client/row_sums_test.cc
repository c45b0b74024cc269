// Sums of rows: every instruction set to the bit against a dumb twin.
#include "client/rows/row_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace row_sums_test {

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      EXPECT_EQ(std::memcmp(&got[i], &want[i], 4), 0) << i << ": " << got[i] << ", " << want[i];
    }
  }
}

class RowSumsTest : public testing::TestWithParam<const RowSums*> {
 protected:
  void Draw() {
    dim_ = 1 + static_cast<uint32_t>(random_.Uniform(200));
    const size_t n = 1 + random_.Uniform(30);
    rows_.assign(n, std::vector<float>(dim_ + 1));
    coefficients_.resize(n);
    pointers_.clear();
    for (size_t k = 0; k < n; ++k) {
      // Few values, so that maxima have equals.
      for (float& x : rows_[k]) {
        x = random_.OneIn(2) ? static_cast<float>(random_.Uniform(3))
                             : static_cast<float>(random_.Double() - 0.5);
        if (random_.OneIn(60)) x = std::numeric_limits<float>::quiet_NaN();
      }
      pointers_.push_back(rows_[k].data() + random_.Uniform(2));
      coefficients_[k] = static_cast<float>(random_.Double() - 0.5);
    }
    out_.assign(dim_ + 1, 7.0f);
    want_.assign(dim_ + 1, 7.0f);
  }

  const TestSeed seed_{31};
  Random random_{seed_.value()};
  const RowSums& sums_ = *GetParam();
  uint32_t dim_ = 0;
  std::vector<std::vector<float>> rows_;
  std::vector<const float*> pointers_;
  std::vector<float> coefficients_, out_, want_;
};

TEST_P(RowSumsTest, SumsFromTheLeft) {
  for (int round = 0; round < 300; ++round) {
    Draw();
    const uint32_t n = random_.OneIn(20) ? 0 : static_cast<uint32_t>(pointers_.size());
    const float* const c = random_.OneIn(2) ? coefficients_.data() : nullptr;
    for (uint32_t i = 0; i < dim_; ++i) {
      volatile float sum = 0;
      for (uint32_t k = 0; k < n; ++k) {
        volatile float product = pointers_[k][i];
        if (c != nullptr) product = product * c[k];
        sum = k == 0 ? product : sum + product;
      }
      want_[i] = sum;
    }
    sums_.sum(pointers_.data(), c, n, dim_, out_.data());
    ExpectSameBits(out_, want_);
  }
}

TEST_P(RowSumsTest, TheFirstOfTheLargestWins) {
  for (int round = 0; round < 300; ++round) {
    Draw();
    std::vector<uint32_t> arg(dim_ + 1, 99), want_arg(dim_ + 1, 99);
    for (uint32_t i = 0; i < dim_; ++i) {
      uint32_t best = 0;
      for (uint32_t k = 1; k < pointers_.size(); ++k) {
        if (std::isnan(pointers_[best][i])) break;
        if (std::isnan(pointers_[k][i]) || pointers_[k][i] > pointers_[best][i]) best = k;
      }
      want_arg[i] = best;
      want_[i] = pointers_[best][i];
    }
    sums_.max(pointers_.data(), static_cast<uint32_t>(pointers_.size()), dim_, out_.data(),
              arg.data());
    EXPECT_EQ(arg, want_arg);
    ExpectSameBits(out_, want_);
  }
}

TEST_P(RowSumsTest, AddsWhereAskedScalesAndSquares) {
  for (int round = 0; round < 300; ++round) {
    Draw();
    const float* const row = pointers_[0];
    const float c = coefficients_[0];
    std::vector<uint32_t> arg(dim_);
    for (uint32_t i = 0; i < dim_; ++i) {
      arg[i] = static_cast<uint32_t>(random_.Uniform(3));
      volatile const float product = row[i] * c;
      if (arg[i] == 1) want_[i] = 7.0f + product;
    }
    sums_.add_where(row, arg.data(), 1, c, dim_, out_.data());
    ExpectSameBits(out_, want_);
    double lanes[8] = {};
    for (uint32_t i = 0; i < dim_; ++i) {
      want_[i] = row[i] * c;
      lanes[i % 8] += static_cast<double>(row[i]) * row[i];
    }
    want_[dim_] = out_[dim_];
    sums_.scale(row, c, dim_, out_.data());
    ExpectSameBits(out_, want_);
    for (uint32_t i = 0; i < dim_; ++i) want_[i] = row[i] / 3.0f;
    std::vector<float> divided(row, row + dim_);
    divided.push_back(want_[dim_]);
    sums_.divide(3.0f, dim_, divided.data());
    ExpectSameBits(divided, want_);
    const double squares = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    if (std::isfinite(squares)) {
      EXPECT_EQ(sums_.squares(row, dim_), squares);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, RowSumsTest,
                         testing::Values(&PlainRowSums(), &BestRowSums()));

}  // namespace row_sums_test
}  // namespace hotbed
