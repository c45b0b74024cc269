#include "cli/bench/calibrate.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace {

// The measuring itself starts this program anew as its peer, so it is tested with the real one
// (tests/e2e/commands_test.py).
TEST(FitRows, FindsTheTwoParts) {
  const RowFit fit = FitRows(64, 30 + 64 / 12.8, 1024, 30 + 1024 / 12.8);
  EXPECT_NEAR(fit.row_ns, 30, 1e-9);
  EXPECT_NEAR(fit.bytes_per_ms, 12.8e6, 1e-3);
}

TEST(FitRows, NoiseGivesNoNegativeTimes) {
  const RowFit flat = FitRows(64, 100, 1024, 90);
  EXPECT_EQ(flat.row_ns, 0);
  EXPECT_DOUBLE_EQ(flat.bytes_per_ms, 1024 / 90.0 * 1e6);
  const RowFit steep = FitRows(64, 1, 1024, 100);
  EXPECT_EQ(steep.row_ns, 0);
  EXPECT_DOUBLE_EQ(steep.bytes_per_ms, 1024 / 100.0 * 1e6);
}

}  // namespace
}  // namespace hotbed
