#include "cli/bench/calibrate.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace calibrate_test {

// The measuring itself starts this program anew as its peer, so it is tested with the real one
// (tests/e2e/commands_test.py).
TEST(RowPartNs, IsWhatBytesDoNotTake) {
  EXPECT_NEAR(RowPartNs(50, 256, 12.8e6), 30, 1e-9);
  EXPECT_NEAR(RowPartNs(85, 776, 12.8e6), 24.375, 1e-9);
  EXPECT_EQ(RowPartNs(50, 776, 12.8e6), 0) << "no negative times";
}

}  // namespace calibrate_test
}  // namespace hotbed
