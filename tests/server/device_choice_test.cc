// What --device becomes where there is no GPU, or none that this build could use.
#include "server/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotbed {
namespace device_choice_test {

using ::testing::HasSubstr;

TEST(DeviceChoiceTest, HostIsNoDevice) {
  const auto chosen = OpenChosenDevice("host", 0, 1 << 20);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(*chosen, nullptr);
}

// One that cannot be: it asks for more memory than any machine has.
TEST(DeviceChoiceTest, AutoFallsBackAndCudaSaysWhy) {
  const auto fallen = OpenChosenDevice("auto", 1ull << 60, 1 << 20);
  ASSERT_TRUE(fallen.ok()) << fallen.status();
  EXPECT_EQ(*fallen, nullptr);
  const auto refused = OpenChosenDevice("cuda", 1ull << 60, 1 << 20);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_THAT(refused.status().message(), HasSubstr("--device=cuda: "));
  EXPECT_THAT(refused.status().message(), HasSubstr("--device=host does without"));
}

TEST(DeviceChoiceTest, TheEmulatedOneTakesWhatItIsTold) {
  const auto chosen = OpenChosenDevice("emulated", 48 << 20, 1 << 20);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ((*chosen)->name(), "emulated on the host");
  EXPECT_EQ((*chosen)->bytes_limit(), 48u << 20);
  EXPECT_FALSE(OpenChosenDevice("emulated", 4096, 1 << 20).ok()) << "no room for messages";
}

}  // namespace device_choice_test
}  // namespace hotbed
