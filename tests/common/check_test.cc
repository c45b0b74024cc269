#include "common/check.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace check_test {

TEST(CheckDeathTest, EndsTheProcessWithConditionAndText) {
  const int rows = 3;
  EXPECT_DEATH(HOTBED_CHECK(rows == 4) << "rows " << rows,
               "F .*check_test.cc:[0-9]+\\] check failed: rows == 4 rows 3");
}

TEST(Check, EvaluatesTheConditionOnce) {
  int calls = 0;
  HOTBED_CHECK(++calls == 1) << "never printed";
  EXPECT_EQ(calls, 1);
}

}  // namespace check_test
}  // namespace hotbed
