// The sampled softmax: frequencies of the samplers, the correction, and losses and gradients
// against plain loops over the drawn classes.
#include "hotbed/sampled_softmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "hotbed/client.h"
#include "hotbed/local.h"
#include "tests/common/test_seed.h"
#include "tests/output/output_twin.h"

namespace hotbed {
namespace sampled_softmax_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ClassSamplerTest, ProbabilitiesAreThoseOfTheFormulas) {
  const auto log_uniform = ClassSampler::LogUniform(3);
  EXPECT_NEAR(log_uniform->Probability(0), std::log(2.0) / std::log(4.0), 1e-12);
  EXPECT_NEAR(log_uniform->Probability(2), std::log(4.0 / 3) / std::log(4.0), 1e-12);
  EXPECT_EQ(log_uniform->Probability(3), 0);
  const auto frequency = ClassSampler::Frequency({{4, 0, 16}}, 0.5);
  EXPECT_NEAR(frequency->Probability(0), 2.0 / 6, 1e-12);
  EXPECT_EQ(frequency->Probability(1), 0);
  EXPECT_NEAR(frequency->Probability(2), 4.0 / 6, 1e-12);
}

// Places on the line, instead of random ones: each class has as many as its probability says.
TEST(ClassSamplerTest, PlacesBelongToClassesByTheirProbability) {
  constexpr int kPlaces = 100'000;
  const auto log_uniform = ClassSampler::LogUniform(50);
  const auto frequency = ClassSampler::Frequency({{3, 0, 1, 4}});
  for (const ClassSampler* sampler : {&*log_uniform, &*frequency}) {
    std::map<uint64_t, int> found;
    for (int i = 0; i < kPlaces; ++i) ++found[sampler->ClassAt((i + 0.5) / kPlaces)];
    double sum = 0;
    for (uint64_t c = 0; c < sampler->classes(); ++c) {
      EXPECT_NEAR(found[c], kPlaces * sampler->Probability(c), 1.001) << c;
      sum += sampler->Probability(c);
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    EXPECT_EQ(sampler->ClassAt(0), 0);
    EXPECT_EQ(sampler->ClassAt(1 - 1e-16), sampler->classes() - 1);
  }
}

TEST(ClassSamplerTest, TheExpectedCountIsTheMeanOverManySamples) {
  const auto sampler = ClassSampler::LogUniform(30);
  for (const bool distinct : {false, true}) {
    constexpr int kSamples = 4'000;
    std::vector<double> counted(30);
    std::vector<double> expected(30);
    for (int i = 0; i < kSamples; ++i) {
      const auto sample = sampler->Draw(8, distinct, static_cast<uint64_t>(i));
      ASSERT_TRUE(sample.ok()) << sample.status();
      ASSERT_EQ(sample->classes.size(), 8);
      if (distinct) {
        ASSERT_EQ(std::set(sample->classes.begin(), sample->classes.end()).size(), 8);
      }
      for (const uint64_t c : sample->classes) counted[c] += 1.0 / kSamples;
      for (uint64_t c = 0; c < 30; ++c) expected[c] += sampler->Expected(*sample, c) / kSamples;
    }
    // The seeds are fixed, so that this never fails by chance. With distinct classes the number of
    // draws depends on what was drawn, and the formula is an approximation.
    for (uint64_t c = 0; c < 30; ++c) EXPECT_NEAR(counted[c], expected[c], 0.05) << c;
  }
  EXPECT_EQ(sampler->Draw(8, true, 5)->classes, sampler->Draw(8, true, 5)->classes);
}

class SampledTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = ConnectLocal("", {.host_bytes = 128 << 20}, {.session_name = "sampled"});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  const Table* Create(const std::string& name, uint64_t rows, uint32_t dim) {
    TableOptions table;
    table.name = name;
    table.rows = rows;
    table.dim = dim;
    table.optimizer.kind = OptimizerKind::kSgd;
    table.optimizer.learning_rate = 1.0f;
    const auto made = client_->CreateTable(table, /*if_not_exists=*/true);
    EXPECT_TRUE(made.ok()) << made.status();
    return *made;
  }
  std::vector<float> Pull(const Table* table) {
    std::vector<uint64_t> ids(table->options().rows);
    std::iota(ids.begin(), ids.end(), uint64_t{0});
    std::vector<float> rows(ids.size() * table->dim());
    const PullFeature in{table, ids, rows.data()};
    EXPECT_TRUE(client_->Pull({&in, 1}).Wait().ok());
    return rows;
  }

  std::unique_ptr<Client> client_;
};

// The loss of one token over its target and the drawn classes, in plain loops.
struct SampledTwin {
  OutputTwin full;
  const ClassSampler* sampler;
  ClassSampler::Sample sample;

  double Corrected(const float* hidden, uint64_t of_class) const {
    return full.Logits(hidden)[of_class] - std::log(sampler->Expected(sample, of_class));
  }
  double Loss(const float* hidden, uint64_t target) const {
    const double of_target = Corrected(hidden, target);
    double sum = std::exp(of_target);
    for (const uint64_t c : sample.classes) {
      if (c != target) sum += std::exp(Corrected(hidden, c));
    }
    return std::log(sum) - of_target;
  }
};

TEST_F(SampledTest, LossesAndGradientsEqualPlainLoops) {
  const TestSeed seed(41);
  Random random(seed.value());
  for (const bool bias : {false, true}) {
    const Table* const table = Create(bias ? "bias" : "plain", 40, 6);
    const auto sampler = ClassSampler::LogUniform(40);
    SampledSoftmaxOptions options;
    options.samples = 12;
    options.bias = bias;
    options.seed = seed.value();
    const auto layer = MakeSampledOutputLayer(client_.get(), table, *sampler, options);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const std::vector<float> before = Pull(table);
    SampledTwin twin{{6, {before.begin(), before.end()}, {.bias = bias}}, &*sampler, {}};
    twin.sample = *sampler->Draw(12, true, seed.value());  // of the first batch
    const uint32_t width = (*layer)->width();
    std::vector<float> hidden;
    for (uint32_t i = 0; i < 4 * width; ++i) {
      hidden.push_back(static_cast<float>(random.Double() - 0.5));
    }
    // One target is in the sample, one is ignored.
    const std::vector<int64_t> targets = {static_cast<int64_t>(twin.sample.classes[3]), -100, 39,
                                          0};
    const auto pass = (*layer)->Forward(hidden, targets);
    ASSERT_TRUE(pass.ok()) << pass.status();
    for (size_t t : {0, 2, 3}) {
      EXPECT_NEAR((*pass)->losses()[t],
                  twin.Loss(hidden.data() + t * width, static_cast<uint64_t>(targets[t])), 1e-6);
    }
    EXPECT_EQ((*pass)->losses()[1], 0);
    const std::vector<float> scales = {1, 1, 0.5f, -2};
    std::vector<float> gradient(hidden.size());
    ASSERT_TRUE((*pass)->Backward(scales, gradient.data()).ok());
    ASSERT_TRUE((*pass)->Push(1).ok());
    const std::vector<float> after = Pull(table);
    // By differences of the twin's loss.
    const auto loss = [&] {
      double sum = 0;
      for (size_t t : {0, 2, 3}) {
        sum += scales[t] * twin.Loss(hidden.data() + t * width, static_cast<uint64_t>(targets[t]));
      }
      return sum;
    };
    for (size_t i = 0; i < hidden.size(); ++i) {
      const float kept = hidden[i];
      hidden[i] = kept + 1e-3f;
      const double more = loss();
      hidden[i] = kept - 1e-3f;
      const double less = loss();
      hidden[i] = kept;
      EXPECT_NEAR(gradient[i], (more - less) / 2e-3, 2e-5) << "hidden " << i;
    }
    for (size_t i = 0; i < twin.full.rows.size(); ++i) {
      const double kept = twin.full.rows[i];
      twin.full.rows[i] = kept + 1e-4;
      const double more = loss();
      twin.full.rows[i] = kept - 1e-4;
      const double less = loss();
      twin.full.rows[i] = kept;
      EXPECT_NEAR(before[i] - after[i], (more - less) / 2e-4, 2e-5) << "row element " << i;
    }
  }
}

TEST_F(SampledTest, SaysWhatIsAllowed) {
  const Table* const table = Create("refused", 10, 2);
  const auto sampler = ClassSampler::LogUniform(10);
  const auto make = [&](const SampledSoftmaxOptions& options, const ClassSampler& of) {
    return std::string(
        MakeSampledOutputLayer(client_.get(), table, of, options).status().message());
  };
  EXPECT_THAT(make({.samples = 0}, *sampler), HasSubstr("samples is 0, allowed: 1..10"));
  EXPECT_THAT(make({.samples = 11}, *sampler), HasSubstr("allowed: 1..10, as they are distinct"));
  EXPECT_EQ(make({.samples = 11, .distinct = false}, *sampler), "");
  EXPECT_THAT(make({.samples = 5}, *ClassSampler::LogUniform(11)),
              HasSubstr("the sampler has 11 classes, allowed: up to 10"));
  EXPECT_THAT(std::string(ClassSampler::Frequency({{1, -1}}).status().message()),
              HasSubstr("counts: element 1 is -1, allowed: finite numbers, 0 or more"));
  EXPECT_THAT(std::string(ClassSampler::Frequency({{0, 0}}).status().message()),
              HasSubstr("add up to 0"));
  EXPECT_THAT(std::string(ClassSampler::LogUniform(0).status().message()),
              HasSubstr("classes is 0"));
  const auto one = ClassSampler::Frequency({{1, 0, 0}});
  EXPECT_THAT(std::string(one->Draw(2, true, 1).status().message()),
              HasSubstr("2 distinct classes of 3 are asked for, and 2000 draws gave 1"));
  const auto layer = MakeSampledOutputLayer(client_.get(), table, *one, {.samples = 1});
  EXPECT_THAT(std::string((*layer)->Forward({{1, 2}}, {{2}}).status().message()),
              HasSubstr("targets: element 0 is 2, which the sampler never draws"));
  EXPECT_THAT(std::string((*layer)->Forward({{1, 2}}, {{10}}).status().message()),
              HasSubstr("targets: element 0 is 10, allowed: 0..9"));
  const auto pass = (*layer)->Forward({{1, 2}}, {{0}});
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_THAT(std::string((*pass)->Push(1).message()), HasSubstr("after its Backward"));
}

}  // namespace sampled_softmax_test
}  // namespace hotbed
