#include "common/edit_distance.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace edit_distance_test {

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("zpif", "zipf"), 2u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("rows", "row"), 1u);
}

}  // namespace edit_distance_test
}  // namespace hotbed
