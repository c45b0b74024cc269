// The client's work on gradients before they are sent: rows shared by ids, padding and bounds,
// scales, clipping by norms, the mean over trainers, accumulation. Against the fake cluster (rows
// begin at zero, row -= gradient).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/batch/gradient_clip.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "tests/client/fake_cluster.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace push_gradients_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Outcome = PushResult::Outcome;

class PushGradientsTest : public testing::Test {
 protected:
  uint32_t Add(const std::string& name, uint32_t dim, uint32_t shards = 3,
               const std::function<void(v1::TableSpec*)>& change = nullptr) {
    v1::TableSpec spec;
    spec.set_name(name);
    spec.set_rows(100);
    spec.set_dim(dim);
    if (change) change(&spec);
    return cluster_.AddTable(spec, shards);
  }
  void Connect(ClientOptions options = {}) {
    options.deadline = absl::Seconds(20);
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  const Table* Open(const std::string& name) {
    auto table = client_->OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *table : nullptr;
  }
  void Push(const std::vector<SparseGradient>& gradients, const PushOptions& options = {}) {
    std::vector<PushFeature> features;
    for (const SparseGradient& g : gradients) {
      features.push_back({g.table, g.ids, g.gradients.data()});
    }
    const PushResult pushed = client_->Push(++step_, features, options).Wait();
    ASSERT_EQ(pushed.outcome, Outcome::kApplied) << pushed.status;
  }
  std::string RefusalOf(const PushFeature& feature, const PushOptions& options = {}) {
    const PushResult pushed = client_->Push(++step_, {&feature, 1}, options).Wait();
    EXPECT_EQ(pushed.outcome, Outcome::kFailed);
    return std::string(pushed.status.message());
  }
  std::vector<float> Random01(size_t n) {
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(random_.Double() - 0.5);
    return values;
  }

  const TestSeed seed_{51};
  Random random_{seed_.value()};
  FakeCluster cluster_{2};
  std::unique_ptr<Client> client_;
  uint64_t step_ = 0;
};

TEST_F(PushGradientsTest, IdsShareRowsOfGradients) {
  const uint32_t t = Add("t", 2);
  Connect();
  // Two bags of a matrix that is wider than the table.
  const std::vector<float> matrix = {9, 1, 2, 9, 10, 20};
  const std::vector<uint64_t> ids = {4, 7, 4, 4};
  const std::vector<uint32_t> rows = {0, 0, 1, 1};
  const std::vector<float> coefficients = {1, 0.5, 2, 0};
  PushFeature feature{Open("t"), ids, matrix.data() + 1};
  feature.gradient_rows = rows.data();
  feature.gradient_row_count = 2;
  feature.gradient_stride = 3;
  ASSERT_EQ(client_->Push(++step_, {&feature, 1}).Wait().outcome, Outcome::kApplied);
  EXPECT_THAT(cluster_.Row(t, 4), ElementsAre(-(1 + 10 + 10), -(2 + 20 + 20)));
  EXPECT_THAT(cluster_.Row(t, 7), ElementsAre(-1, -2));
  feature.coefficients = coefficients.data();
  const std::vector<uint64_t> others = {5, 8, 5, 5};
  feature.ids = others;
  ASSERT_EQ(client_->Push(++step_, {&feature, 1}).Wait().outcome, Outcome::kApplied);
  EXPECT_THAT(cluster_.Row(t, 5), ElementsAre(-(1 + 20), -(2 + 40)));
  EXPECT_THAT(cluster_.Row(t, 8), ElementsAre(-0.5, -1));
  // The columns of row 0 come from positions 0 and 1, both columns of row 1 from position 0.
  const std::vector<uint32_t> arg_max = {0, 1, 0, 0}, positions = {0, 1, 0, 1};
  const std::vector<uint64_t> last = {6, 9, 6, 9};
  feature.ids = last;
  feature.coefficients = nullptr;
  feature.arg_max = arg_max.data();
  feature.bag_positions = positions.data();
  ASSERT_EQ(client_->Push(++step_, {&feature, 1}).Wait().outcome, Outcome::kApplied);
  EXPECT_THAT(cluster_.Row(t, 6), ElementsAre(-(1 + 10), -20));
  EXPECT_THAT(cluster_.Row(t, 9), ElementsAre(0, -2));

  const uint64_t sent = cluster_.push_messages();
  feature.gradient_row_count = 1;
  EXPECT_THAT(RefusalOf(feature), AllOf(HasSubstr("gradient row 1 at position 2"),
                                        HasSubstr("gradient_row_count is 1")));
  feature.gradient_row_count = 2;
  feature.gradient_stride = 1;
  EXPECT_THAT(RefusalOf(feature), HasSubstr("gradient_stride is 1, below the dim 2"));
  feature.gradient_stride = 3;
  feature.arg_max = nullptr;
  EXPECT_THAT(RefusalOf(feature), HasSubstr("come together"));
  EXPECT_EQ(cluster_.push_messages(), sent);
}

TEST_F(PushGradientsTest, PaddingAndBoundsAreResolvedBeforeDuplicatesAreRemoved) {
  const uint32_t zero = Add("zero", 1, 2, [](v1::TableSpec* spec) {
    spec->set_bounds_mode(v1::BOUNDS_ZERO);
    spec->set_padding_id(1);
  });
  const uint32_t modulo =
      Add("modulo", 1, 2, [](v1::TableSpec* spec) { spec->set_bounds_mode(v1::BOUNDS_MODULO); });
  Add("error", 1);
  Connect();
  const std::vector<uint64_t> ids = {1, 2, 100, 99, ~uint64_t{0}, 102, 1, 2};
  const std::vector<float> gradients = {1, 2, 4, 8, 16, 32, 64, 128};
  Push({{Open("zero"), ids, gradients}, {Open("modulo"), ids, gradients}});
  EXPECT_THAT(cluster_.Row(zero, 1), ElementsAre(0));
  EXPECT_THAT(cluster_.Row(zero, 2), ElementsAre(-130));
  EXPECT_THAT(cluster_.Row(zero, 99), ElementsAre(-8));
  EXPECT_EQ(cluster_.shard({zero, 0}).rows.size() + cluster_.shard({zero, 1}).rows.size(), 2);
  EXPECT_THAT(cluster_.Row(modulo, 1), ElementsAre(-65));
  EXPECT_THAT(cluster_.Row(modulo, 0), ElementsAre(-4));
  EXPECT_THAT(cluster_.Row(modulo, 99), ElementsAre(-24)) << "-1 is the last row";
  EXPECT_THAT(cluster_.Row(modulo, 2), ElementsAre(-162));
  EXPECT_EQ(client_->Stats().ids_zeroed, 3);
  EXPECT_THAT(RefusalOf({Open("error"), ids, gradients.data()}),
              AllOf(HasSubstr("id 100 at position 2"), HasSubstr("0..99")));
  // Pulls of the same ids return zeros where there is no row, and the row does not exist.
  std::vector<float> rows(ids.size(), 7);
  std::vector<uint8_t> exists(ids.size(), 7);
  PullFeature pull{Open("zero"), ids, rows.data(), RowType::kFp32, exists.data()};
  ASSERT_TRUE(client_->Pull({&pull, 1}).Wait().ok());
  EXPECT_THAT(rows, ElementsAre(0, -130, 0, -8, 0, 0, 0, -130));
  EXPECT_THAT(exists, ElementsAre(0, 1, 0, 1, 0, 0, 0, 1));
  const std::vector<uint64_t> nothing = {1, 1};
  pull.ids = nothing;
  const uint64_t pulls = cluster_.pull_messages();
  ASSERT_TRUE(client_->Pull({&pull, 1}).Wait().ok());
  EXPECT_EQ(cluster_.pull_messages(), pulls);
}

TEST_F(PushGradientsTest, SliceNormsAndGlobalNorm) {
  const auto two_slices = [](v1::TableSpec* spec) { spec->set_column_slices(2); };
  const uint32_t slices = Add("slices", 3, 2, [&](v1::TableSpec* spec) {
    two_slices(spec);
    spec->set_clip_slice_norm(1);
  });
  const uint32_t global = Add("global", 3, 2, two_slices);
  Connect();
  // The first slice has two columns: its norm is 3 (over rows 1 and 60), the second's is 4.
  const std::vector<uint64_t> ids = {1, 60, 1};
  const std::vector<float> gradients = {1, 1, 3, 0, 2, 0, 0, 1, 1};
  Push({{Open("slices"), ids, gradients}});
  const float third = 1.0f / 3, quarter = 0.25f;
  EXPECT_THAT(cluster_.Row(slices, 1), ElementsAre(-third, -2 * third, -4 * quarter));
  EXPECT_THAT(cluster_.Row(slices, 60), ElementsAre(0, -2 * third, 0));
  PushOptions options;
  options.clip_global_norm = 1;
  Push({{Open("global"), ids, gradients}}, options);
  EXPECT_THAT(cluster_.Row(global, 1), ElementsAre(-0.2f, -2 * 0.2f, -4 * 0.2f));
  EXPECT_THAT(cluster_.Row(global, 60), ElementsAre(0, -2 * 0.2f, 0));
  // Below the limit nothing changes.
  options.clip_global_norm = 5;
  const std::vector<uint64_t> others = {2, 61, 2};
  Push({{Open("global"), others, gradients}}, options);
  EXPECT_THAT(cluster_.Row(global, 2), ElementsAre(-1, -2, -4));
}

TEST_F(PushGradientsTest, TheGlobalNormIsOverAllTablesAndTheSameForAllShards) {
  const uint32_t few = Add("few", 5, 1), many = Add("many", 5, 20);
  const uint32_t wide = Add("wide", 11, 7, [](v1::TableSpec* s) { s->set_column_slices(4); });
  const uint32_t whole = Add("whole", 11, 1);
  Connect();
  SparseGradient a{nullptr, {}, {}}, b{nullptr, {}, {}};
  for (int i = 0; i < 60; ++i) {
    a.ids.push_back(random_.Uniform(30));
    b.ids.push_back(random_.Uniform(30));
  }
  a.gradients = Random01(a.ids.size() * 5);
  b.gradients = Random01(b.ids.size() * 11);
  // Duplicates are summed first: the norm is that of the accumulated gradient.
  GradientAccumulator accumulator;
  a.table = Open("few");
  b.table = Open("whole");
  ASSERT_TRUE(accumulator.Add({a, b}).ok());
  const std::vector<SparseGradient> summed = accumulator.Take();
  double squares = 0;
  for (const SparseGradient& g : summed) {
    for (float v : g.gradients) squares += static_cast<double>(v) * v;
  }
  EXPECT_NEAR(GlobalNorm(summed), std::sqrt(squares), 1e-12);
  PushOptions options;
  options.clip_global_norm = 0.75f;
  Push({a, b}, options);
  const float scale = static_cast<float>(0.75 / GlobalNorm(summed));
  for (size_t g = 0; g < 2; ++g) {
    const uint32_t dim = summed[g].table->dim();
    for (size_t i = 0; i < summed[g].ids.size(); ++i) {
      const std::vector<float> row = cluster_.Row(g == 0 ? few : whole, summed[g].ids[i]);
      for (uint32_t d = 0; d < dim; ++d) {
        ASSERT_EQ(row[d], -(summed[g].gradients[i * dim + d] * scale));
      }
    }
  }
  a.table = Open("many");
  b.table = Open("wide");
  Push({a, b}, options);
  for (uint64_t id = 0; id < 30; ++id) {
    EXPECT_EQ(cluster_.Row(many, id), cluster_.Row(few, id));
    EXPECT_EQ(cluster_.Row(wide, id), cluster_.Row(whole, id));
  }
}

TEST_F(PushGradientsTest, RowsThatAreNotFiniteDoNotCountInTheNorm) {
  const uint32_t t = Add("t", 1, 1, [](v1::TableSpec* s) { s->set_nan_policy(v1::NAN_SKIP); });
  Add("reject", 1);
  Connect();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  PushOptions options;
  options.clip_global_norm = 1;
  Push({{Open("t"), {1, 2}, {4, nan}}}, options);
  EXPECT_THAT(cluster_.Row(t, 1), ElementsAre(-1));
  const std::vector<uint64_t> ids = {1, 2};
  const std::vector<float> gradients = {4, nan};
  EXPECT_THAT(RefusalOf({Open("reject"), ids, gradients.data()}, options),
              HasSubstr("the gradient of id 2 is NaN"));
}

TEST_F(PushGradientsTest, AMeanDividesByTheTrainers) {
  const uint32_t async = Add(
      "async", 1, 1, [](v1::TableSpec* spec) { spec->set_gradient_reduction(v1::REDUCTION_MEAN); });
  const uint32_t sum = Add("sum", 1, 1);
  ClientOptions options;
  options.trainers = 4;
  Connect(options);
  Push({{Open("async"), {1}, {3}}, {Open("sum"), {1}, {3}}});
  EXPECT_THAT(cluster_.Row(async, 1), ElementsAre(-0.75));
  EXPECT_THAT(cluster_.Row(sum, 1), ElementsAre(-3));
  client_.reset();
  options.trainers = 0;
  const auto refused = Client::Connect(cluster_.target(), options);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("trainers is 0"));
}

// A commit of a synchronous table divides by its trainers itself; the client must not divide again.
TEST(ClipGradientsTest, SynchronousTablesAreNotDividedByTheClient) {
  const std::vector<std::pair<std::pair<Consistency, uint32_t>, float>> cases = {
      {{Consistency::kAsync, 0}, 0.25f},
      {{Consistency::kBounded, 2}, 0.25f},
      {{Consistency::kBounded, 0}, 1.0f},
      {{Consistency::kSync, 0}, 1.0f}};
  for (const auto& [consistency, scale] : cases) {
    TableOptions options;
    options.dim = 3;
    options.column_slices = 2;
    options.gradient_reduction = GradientReduction::kMean;
    options.consistency = consistency.first;
    options.staleness = consistency.second;
    const TableHandle table(nullptr, options, 1);
    TableGroup group;
    group.table = &table;
    GradientSum sum({}, 1.0f, RowType::kFp32);
    std::vector<SummedGradients> out;
    ClipGradients({&group, 1}, {0.0f, 4}, &sum, &out);
    EXPECT_THAT(out[0].scale_of_slice, ElementsAre(scale, scale));
    EXPECT_TRUE(out[0].rows.empty());
  }
}

TEST_F(PushGradientsTest, OptionsAndTablesThatTakeNoGradientAreRefused) {
  const uint32_t none = Add("none", 1, 1, [](v1::TableSpec* spec) {
    spec->mutable_optimizer()->set_kind(v1::OPTIMIZER_NONE);
  });
  Add("t", 1);
  Connect();
  const std::vector<uint64_t> ids = {1, 1};
  const std::vector<float> gradients = {1, 2};
  EXPECT_THAT(RefusalOf({Open("none"), ids, gradients.data()}),
              AllOf(HasSubstr("table none"), HasSubstr("Embeddings::Gradients")));
  const PushFeature feature{Open("t"), ids, gradients.data()};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  PushOptions options;
  options.clip_global_norm = -1;
  EXPECT_THAT(RefusalOf(feature, options), HasSubstr("clip_global_norm is -1"));
  options.clip_global_norm = nan;
  EXPECT_THAT(RefusalOf(feature, options), HasSubstr("clip_global_norm is nan"));
  options = {};
  options.gradient_scale = nan;
  EXPECT_THAT(RefusalOf(feature, options), HasSubstr("gradient_scale is nan"));
  options = {};
  options.assign = true;
  EXPECT_THAT(RefusalOf(feature, options), AllOf(HasSubstr("id 1"), HasSubstr("twice")));
  options.gradient_scale = 2;
  EXPECT_THAT(RefusalOf(feature, options), HasSubstr("gradient_scale"));
  EXPECT_EQ(cluster_.push_messages(), 0);
  options = {};
  options.assign = true;
  Push({{Open("none"), {5}, {-9}}}, options);
  EXPECT_THAT(cluster_.Row(none, 5), ElementsAre(9));
}

// Absent rows next to present ones: each gets its own gradient and not that of a neighbour.
TEST_F(PushGradientsTest, AbsentRowsMixedWithPresentOnes) {
  const uint32_t t = Add("t", 3, 5);
  Connect();
  std::map<uint64_t, std::vector<float>> want;
  for (int step = 0; step < 20; ++step) {
    SparseGradient g{Open("t"), {}, {}};
    for (int i = 0; i < 30; ++i) {
      g.ids.push_back(random_.OneIn(4) ? 17 : random_.Uniform(100));
      std::vector<float>& row = want.try_emplace(g.ids.back(), 3).first->second;
      for (float& sum : row) {
        g.gradients.push_back(static_cast<float>(random_.Uniform(9)) - 4);
        sum -= g.gradients.back();
      }
    }
    Push({g});
  }
  for (const auto& [id, row] : want) EXPECT_EQ(cluster_.Row(t, id), row) << id;
}

TEST_F(PushGradientsTest, AccumulationAddsInTheOrderOfAdd) {
  const uint32_t a = Add("a", 3), b = Add("b", 1);
  Connect();
  const Table* const tables[2] = {Open("a"), Open("b")};
  GradientAccumulator accumulator;
  std::map<const Table*, std::map<uint64_t, std::vector<float>>> want;
  std::map<const Table*, std::vector<uint64_t>> order;
  for (int k = 0; k < 4; ++k) {
    std::vector<SparseGradient> gradients;
    for (const Table* table : tables) {
      SparseGradient g{table, {}, {}};
      for (int i = 0; i < 10; ++i) g.ids.push_back(random_.Uniform(15));
      g.gradients = Random01(10 * table->dim());
      for (size_t i = 0; i < g.ids.size(); ++i) {
        const auto [row, fresh] = want[table].try_emplace(g.ids[i], table->dim());
        if (fresh) order[table].push_back(g.ids[i]);
        for (uint32_t d = 0; d < table->dim(); ++d) {
          const float term = 0.25f * g.gradients[i * table->dim() + d];
          row->second[d] = fresh ? term : row->second[d] + term;
        }
      }
      gradients.push_back(g);
    }
    ASSERT_TRUE(accumulator.Add(gradients, 0.25f).ok());
  }
  EXPECT_EQ(accumulator.added(), 4);
  const std::vector<SparseGradient> taken = accumulator.Take();
  EXPECT_EQ(accumulator.added(), 0);
  EXPECT_TRUE(accumulator.Take().empty());
  ASSERT_EQ(taken.size(), 2);
  PushOptions options;
  options.gradient_scale = 2;
  ASSERT_EQ(PushGradients(client_.get(), 1, taken, options).Wait().outcome, Outcome::kApplied);
  for (const SparseGradient& g : taken) {
    EXPECT_EQ(g.ids, order[g.table]);
    for (size_t i = 0; i < g.ids.size(); ++i) {
      const std::vector<float> row = cluster_.Row(g.table == tables[0] ? a : b, g.ids[i]);
      for (uint32_t d = 0; d < g.table->dim(); ++d) {
        ASSERT_EQ(g.gradients[i * g.table->dim() + d], want[g.table][g.ids[i]][d]);
        ASSERT_EQ(row[d], -2 * want[g.table][g.ids[i]][d]);
      }
    }
  }
  const SparseGradient short_one{tables[0], {1, 2}, {1, 2, 3}};
  EXPECT_THAT(std::string(accumulator.Add({short_one}).message()),
              AllOf(HasSubstr("gradients[0] of table a"), HasSubstr("3 floats for 2 ids")));
  EXPECT_FALSE(accumulator.Add({}, std::numeric_limits<float>::infinity()).ok());
  EXPECT_EQ(accumulator.added(), 0);
  EXPECT_THAT(std::string(PushGradients(client_.get(), 2, {&short_one, 1}).Wait().status.message()),
              HasSubstr("6 are needed"));
}

}  // namespace push_gradients_test
}  // namespace hotbed
