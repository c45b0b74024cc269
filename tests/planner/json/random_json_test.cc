#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/random.h"
#include "planner/model/plan_names.h"
#include "tests/common/sanitized.h"
#include "tests/common/test_seed.h"
#include "tests/planner/json/json_cases.h"
#include "tests/planner/json/mutate_json.h"

namespace hotbed {
namespace random_json_test {

// Bodies that have broken readers of JSON before.
const std::vector<std::string>& Corpus() {
  static const auto* const kCorpus =
      new std::vector<std::string>{"",
                                   "{",
                                   "}",
                                   "null",
                                   "0",
                                   "\"",
                                   "[]",
                                   "{}",
                                   "{\"\":{}}",
                                   "[[[[[[[[[[",
                                   "\xef\xbb\xbf{}",
                                   std::string(100000, '['),
                                   std::string(100000, '{'),
                                   "{\"tables\":" + std::string(50, '['),
                                   "{\"tables\":[{\"rows\":1e400}]}",
                                   "{\"tables\":[{\"rows\":-0}]}",
                                   "{\"tables\":[{\"rows\":1E-999999999}]}",
                                   "{\"tables\":[{\"rows\":123456789012345678901234}]}",
                                   "{\"tables\":[{\"name\":\"\\ud800\"}]}",
                                   "{\"tables\":[{\"name\":\"\\u0000\"}]}",
                                   "{\"a\":1,\"a\":1}",
                                   "nan",
                                   "Infinity",
                                   "{\"tables\":[nan]}",
                                   std::string("\0{}", 3),
                                   "{\"tables\": 5, \"servers\": 5}",
                                   "{\"cuts\":{\"-1\":[]},\"tables\":[]}"};
  return *kCorpus;
}

TEST(RandomJson, CorpusIsReadOrRefused) {
  for (const std::string& text : Corpus()) EXPECT_EQ(ReaderFault(text), "") << text.substr(0, 80);
}

// One change that keeps much of the structure: a byte, a cut, a piece twice, a word from elsewhere.
std::string Mutated(std::string text, Random* random) {
  static constexpr const char* kWords[] = {"null",       "true",  "-1",
                                           "0",          "1e308", "9223372036854775807",
                                           "4294967295", "\"\"",  "{}",
                                           "[]",         "0.5",   "\"user\"",
                                           "\"s0\"",     "[0,1]", "18446744073709551615",
                                           "1e-320"};
  const size_t at = random->Uniform(text.size() + 1);
  const size_t length = std::min<size_t>(random->Uniform(20), text.size() - at);
  switch (random->Uniform(5)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random->Uniform(256));
      return text;
    case 1:
      return text.erase(at, length);
    case 2:
      return text.insert(at, text.substr(at, length));
    default: {
      // A value of some key: what stands between a colon and the next comma.
      const size_t colon = text.find(':', at);
      if (colon == std::string::npos) return text;
      const size_t end = text.find_first_of(",}]", colon);
      if (end == std::string::npos) return text;
      return text.replace(colon + 1, end - colon - 1, kWords[random->Uniform(16)]);
    }
  }
}

// The input that the mutations begin with has a plan under every strategy, so that not all of them
// end at the first error.
TEST(RandomJson, ThePlainInputPlans) {
  for (const char* const name : kPlanWords<PlannerStrategy>) {
    const auto input =
        ReadPlannerInput(absl::StrReplaceAll(kPlainInput, {{"memory_balanced", name}}));
    ASSERT_TRUE(input.ok()) << input.error().message;
    const auto plan = ComputePlan(input.value());
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.error().message;
    EXPECT_EQ(plan.value().strategy, name);
  }
}

TEST(RandomJson, MutationsAreReadOrRefused) {
  const TestSeed seed(21);
  Random random(seed.value());
  const std::string plan = WritePlan(FullPlan());
  for (int round = 0; round < FewerIfSanitized(20000); ++round) {
    std::string text = round % 4 == 0 ? kFullInput : round % 4 == 1 ? plan : kPlainInput;
    const char* const strategy = kPlanWords<PlannerStrategy>[round / 4 % 8];
    text = absl::StrReplaceAll(text, {{"memory_balanced", strategy}});
    const uint64_t changes = 1 + random.Uniform(3);
    for (uint64_t i = 0; i < changes; ++i) text = Mutated(text, &random);
    ASSERT_EQ(ReaderFault(text), "") << text;
  }
}

}  // namespace random_json_test
}  // namespace hotbed
