#include "planner/coordinator/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hotbed {
namespace {

TEST(StatusPageTest, TablesAreDescribedInTheWordsOfTheCommandLine) {
  CoordinatorStatus status;
  v1::TableSpec* const table = status.map.add_tables();
  table->set_id(3);
  table->set_name("users");
  table->set_rows(1000);
  table->set_dim(16);
  table->set_weight_type(v1::WEIGHT_BF16);
  table->mutable_optimizer()->set_kind(v1::OPTIMIZER_ROWWISE_ADAGRAD);
  table->set_durability(v1::DURABILITY_CHECKPOINT);
  v1::TableSpec* const later = status.map.add_tables();
  later->set_weight_type(static_cast<v1::WeightType>(77));
  const StatusPage page = MakeStatusPage(status, "127.0.0.1:1", 0);
  ASSERT_EQ(page.tables.size(), 3u);
  ASSERT_EQ(page.tables[1].rows.size(), 2u);
  EXPECT_THAT(page.tables[1].rows[0],
              testing::ElementsAre("3", "users", "bounded", "1000", "16", "bf16", "rowwise-adagrad",
                                   "0", "0", "checkpoint"));
  EXPECT_EQ(page.tables[1].rows[1][5], "77") << "a value of a later version";
}

}  // namespace
}  // namespace hotbed
