#include "cli/commands/tables/table_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace hotbed {
namespace table_flags_test {

TEST(TableFlags, KeepWhatWasGivenInItsOrder) {
  CLI::App app;
  GivenOptions given;
  AddTableFlags(&app, false, &given);
  app.parse("--clip-value 3 --lazy-decay --lr=0.5 --padding-id -1");
  ASSERT_EQ(given.size(), 4u);
  TableSpec spec;
  for (const auto& [option, text] : given) {
    ASSERT_TRUE(SetTableOption(*option, text, &spec).ok()) << option->name;
  }
  EXPECT_EQ(spec.optimizer.clip_value, 3.0f);
  EXPECT_TRUE(spec.optimizer.lazy_decay);
  EXPECT_EQ(spec.optimizer.learning_rate, 0.5f);
  EXPECT_EQ(spec.padding_id, ~uint64_t{0});
}

TEST(TableFlags, ATextThatIsNoneOfTheOptionsIsAUsageError) {
  CLI::App app;
  GivenOptions given;
  AddTableFlags(&app, false, &given);
  EXPECT_THROW(app.parse("--weight-type fp8"), CLI::ValidationError);
  EXPECT_THROW(app.parse("--wieght-type fp16"), CLI::ExtrasError);
}

TEST(TableFlags, RefusalsAreSaidOfTheirFlag) {
  const auto said = [](const char* message) {
    return std::string(NamingItsFlag(absl::InvalidArgumentError(message)).message());
  };
  EXPECT_EQ(said("table \"t\": nan_policy is 9, allowed: 0..2"),
            "--nan: table \"t\": nan_policy is 9, allowed: 0..2");
  EXPECT_EQ(said("table \"t\": schedule.gamma is 7, allowed: (0, 1]"),
            "--gamma: table \"t\": schedule.gamma is 7, allowed: (0, 1]");
  EXPECT_EQ(said("table \"t\": name is bad"), "table \"t\": name is bad");
  EXPECT_TRUE(NamingItsFlag(absl::OkStatus()).ok());
}

}  // namespace table_flags_test
}  // namespace hotbed
