#include "cli/bench/calibrate.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace calibrate_test {

// The measurement itself starts its own program again as a peer, so tests/e2e/commands_test.py
// tests it with the real program.
TEST(RowPartNs, IsWhatBytesDoNotTake) {
  EXPECT_NEAR(RowPartNs(50, 256, 12.8e6), 30, 1e-9);
  EXPECT_NEAR(RowPartNs(85, 776, 12.8e6), 24.375, 1e-9);
  EXPECT_EQ(RowPartNs(50, 776, 12.8e6), 0) << "no negative times";
}

}  // namespace calibrate_test
}  // namespace hotbed
