// The seed of a random test: HOTBED_TEST_SEED if it is set, else `fallback`. Printed with every
// failure of the scope, with the command that replays it:
//
//   const TestSeed seed(42);
//   Random random(seed.value());
#ifndef HOTBED_TESTS_COMMON_TEST_SEED_H_
#define HOTBED_TESTS_COMMON_TEST_SEED_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace hotbed {

inline uint64_t SeedFromEnvironment(uint64_t fallback) {
  const char* const text = std::getenv("HOTBED_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
}

class TestSeed {
 public:
  explicit TestSeed(uint64_t fallback)
      : value_(SeedFromEnvironment(fallback)), trace_(__FILE__, __LINE__, Replay(value_)) {}

  uint64_t value() const { return value_; }

 private:
  static std::string Replay(uint64_t seed) {
    const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
    return absl::StrCat("replay: HOTBED_TEST_SEED=", seed, " ", testing::internal::GetArgvs()[0],
                        " --gtest_filter=", test->test_suite_name(), ".", test->name());
  }

  uint64_t value_;
  testing::ScopedTrace trace_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COMMON_TEST_SEED_H_
