// The output layer through the public client over the local engine: equal to a twin of plain loops
// for any number of shards, exactly once, and refusals by name.
#include "hotbed/output_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "hotbed/local.h"
#include "proto/convert.h"
#include "tests/common/test_seed.h"
#include "tests/output/output_twin.h"

namespace hotbed {
namespace output_layer_test {

using ::testing::HasSubstr;

std::unique_ptr<Client> Open(const std::string& session) {
  ClientOptions options;
  options.session_name = session;
  options.deadline = absl::Seconds(60);
  auto client = ConnectLocal("", {.host_bytes = 256 << 20}, options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

TableOptions Classes(const std::string& name, uint64_t rows, uint32_t dim) {
  TableOptions table;
  table.name = name;
  table.rows = rows;
  table.dim = dim;
  table.optimizer.kind = OptimizerKind::kSgd;
  table.optimizer.learning_rate = 1.0f;
  table.initializer.kind = InitializerKind::kZero;
  return table;
}

// A table of at least this many shards, which only tests and restores ask for.
const Table* Create(Client* client, const TableOptions& options, uint32_t shards) {
  v1::CreateTablesRequest request;
  v1::NewTable& table = *request.add_tables();
  *table.mutable_spec() = ToProto(options);
  table.set_shards(shards);
  const auto made = static_cast<ClientImpl*>(client)->WholeTables()->CreateTables(request);
  EXPECT_TRUE(made.ok()) << made.status();
  const auto opened = client->OpenTable(options.name);
  EXPECT_TRUE(opened.ok()) << opened.status();
  if (!opened.ok()) return nullptr;
  EXPECT_EQ((*opened)->shard_count(), shards);
  return *opened;
}

std::vector<uint64_t> AllRows(const Table* table) {
  std::vector<uint64_t> ids(table->options().rows);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  return ids;
}

std::vector<float> Pull(Client* client, const Table* table) {
  const std::vector<uint64_t> ids = AllRows(table);
  std::vector<float> rows(ids.size() * table->dim());
  const PullFeature in{table, ids, rows.data()};
  const absl::Status pulled = client->Pull({&in, 1}).Wait();
  EXPECT_TRUE(pulled.ok()) << pulled;
  return rows;
}

void Assign(Client* client, const Table* table, uint64_t step, const std::vector<float>& rows) {
  const std::vector<uint64_t> ids = AllRows(table);
  const PushFeature out{table, ids, rows.data()};
  PushOptions options;
  options.assign = true;
  const PushResult pushed = client->Push(step, {&out, 1}, options).Wait();
  EXPECT_TRUE(pushed.status.ok()) << pushed.status;
}

std::vector<float> Randoms(Random* random, size_t count, double size) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(size * (2 * random->Double() - 1)));
  }
  return values;
}

template <typename A, typename B>
void ExpectNear(const A& got, const B& want, double within, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], within * std::max(1.0, std::abs(static_cast<double>(want[i]))))
        << what << ", element " << i;
  }
}

// The exact values of the ten steps, as fp64 arithmetic gives them: two tokens, three classes,
// logits -= gradient of the sum of the losses.
TEST(OutputLayerTest, TenStepsOfTwoTokensHaveTheExactLosses) {
  const std::vector<double> exact = {3.719448, 1.697689, 0.863813, 0.545163, 0.392786,
                                     0.305629, 0.249666, 0.210831, 0.182358, 0.160610};
  const auto client = Open("ten");
  for (const uint32_t shards : {1, 2, 3}) {
    const Table* const table =
        Create(client.get(), Classes(absl::StrCat("ten", shards), 3, 2), shards);
    // Row c has the logits of class c, since the hidden state of token t is the unit vector t.
    Assign(client.get(), table, 1, {-.3f, .1f, 1.0f, 2.0f, .1f, .4f});
    const auto layer = OutputLayer::Make(client.get(), table);
    ASSERT_TRUE(layer.ok()) << layer.status();
    for (size_t step = 0; step < exact.size(); ++step) {
      const auto pass = (*layer)->Forward({{1, 0, 0, 1}}, {{0, 2}});
      ASSERT_TRUE(pass.ok()) << pass.status();
      EXPECT_NEAR((*pass)->losses()[0] + (*pass)->losses()[1], exact[step], 1e-6)
          << shards << " shards, step " << step;
      EXPECT_THAT((*pass)->correct(), step == 0   ? ::testing::ElementsAre(0, 0)
                                      : step == 1 ? ::testing::ElementsAre(1, 0)
                                                  : ::testing::ElementsAre(1, 1));
      std::vector<float> gradient(4);
      ASSERT_TRUE((*pass)->Backward({{1, 1}}, gradient.data()).ok());
      const absl::Status pushed = (*pass)->Push(step + 1);
      ASSERT_TRUE(pushed.ok()) << pushed;
    }
  }
}

struct Case {
  uint64_t rows;
  uint32_t dim;
  size_t tokens;
  OutputLayerOptions options;
};

// Losses, gradients and rows after two steps, for every number of shards.
void CompareWithTwin(Client* client, const Case& c, uint32_t shards, const std::string& name,
                     uint64_t seed) {
  Random random(seed);
  const Table* const table = Create(client, Classes(name, c.rows, c.dim), shards);
  const std::vector<float> first = Randoms(&random, c.rows * c.dim, 0.5);
  Assign(client, table, 1, first);
  OutputTwin twin{c.dim, {first.begin(), first.end()}, c.options};
  const auto layer = OutputLayer::Make(client, table, c.options);
  ASSERT_TRUE(layer.ok()) << layer.status();
  for (uint64_t step = 1; step <= 2; ++step) {
    const std::vector<float> hidden = Randoms(&random, c.tokens * (*layer)->width(), 1);
    const std::vector<float> scales = Randoms(&random, c.tokens, 0.1);
    std::vector<int64_t> targets;
    for (size_t t = 0; t < c.tokens; ++t) {
      targets.push_back(t % 7 == 3 ? c.options.ignored_target
                                   : static_cast<int64_t>(random.Uniform(c.rows)));
    }
    const OutputTwin::Result want = twin.Run(hidden, targets, scales);
    const auto pass = (*layer)->Forward(hidden, targets);
    ASSERT_TRUE(pass.ok()) << pass.status();
    ExpectNear((*pass)->losses(), want.losses, 1e-6, name + " losses");
    EXPECT_EQ(std::vector<uint8_t>((*pass)->correct().begin(), (*pass)->correct().end()),
              want.correct);
    std::vector<float> gradient(hidden.size());
    const absl::Status backward = (*pass)->Backward(scales, gradient.data());
    ASSERT_TRUE(backward.ok()) << backward;
    ExpectNear(gradient, want.hidden_gradient, 1e-6, name + " gradient of hidden");
    const absl::Status pushed = (*pass)->Push(step);
    ASSERT_TRUE(pushed.ok()) << pushed;
    // The second time it is applied already.
    ASSERT_TRUE((*pass)->Push(step).ok());
    for (size_t i = 0; i < twin.rows.size(); ++i) twin.rows[i] -= want.row_gradient[i];
    const std::vector<float> rows = Pull(client, table);
    ExpectNear(rows, twin.rows, 1e-6, name + " rows");
    twin.rows.assign(rows.begin(), rows.end());
  }
}

TEST(OutputLayerTest, EqualsTheTwinForAnyNumberOfShards) {
  const TestSeed seed(29);
  const auto client = Open("twin");
  const std::vector<Case> cases = {
      {.rows = 50, .dim = 8, .tokens = 5, .options = {}},
      {.rows = 1300, .dim = 33, .tokens = 70, .options = {.bias = true, .label_smoothing = 0.1f}},
      {.rows = 700, .dim = 16, .tokens = 17, .options = {.z_loss = 0.01f, .ignored_target = -1}},
      {.rows = 600,
       .dim = 20,
       .tokens = 33,
       .options = {.label_smoothing = 0.2f, .z_loss = 0.02f, .z_loss_of = ZLoss::kShiftedMean}}};
  for (size_t c = 0; c < cases.size(); ++c) {
    for (const uint32_t shards : {1, 2, 3, 7}) {
      CompareWithTwin(client.get(), cases[c], shards, absl::StrCat("twin", c, "of", shards),
                      seed.value() + c);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Nothing is asked for, nothing is pushed.
TEST(OutputLayerTest, IgnoredTokensHaveNeitherLossNorGradient) {
  const auto client = Open("ignored");
  const Table* const table = Create(client.get(), Classes("ignored", 9, 2), 2);
  Assign(client.get(), table, 1, std::vector<float>(18, 0.25f));
  const auto layer = OutputLayer::Make(client.get(), table);
  const auto pass = (*layer)->Forward({{1, 2, 3, 4}}, {{-100, -100}});
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_THAT((*pass)->losses(), ::testing::Each(0.0f));
  EXPECT_EQ((*pass)->tokens(), 0);
  EXPECT_EQ((*pass)->bits_per_token(), 0);
  std::vector<float> gradient(4, 7.0f);
  ASSERT_TRUE((*pass)->Backward({{1, 1}}, gradient.data()).ok());
  EXPECT_THAT(gradient, ::testing::Each(0.0f));
  ASSERT_TRUE((*pass)->Push(1).ok());
  EXPECT_THAT(Pull(client.get(), table), ::testing::Each(0.25f));
  // What is added is pushed all the same.
  const std::vector<uint64_t> ids = {8};
  const std::vector<float> added = {1, 2};
  const absl::Status pushed = (*pass)->Push(2, {.added_ids = ids, .added_gradients = added.data()});
  ASSERT_TRUE(pushed.ok()) << pushed;
  std::vector<float> want(18, 0.25f);
  want[16] -= 1;
  want[17] -= 2;
  EXPECT_EQ(Pull(client.get(), table), want);
}

// The gradient of a lookup of the same table enters the same update: with Adam, two updates would
// give other rows.
TEST(OutputLayerTest, AddedGradientsAndThoseOfTheLayerAreOneUpdate) {
  const auto client = Open("tied");
  TableOptions options = Classes("tied", 6, 2);
  options.optimizer.kind = OptimizerKind::kAdam;
  options.optimizer.learning_rate = 0.1f;
  const Table* const tied = Create(client.get(), options, 3);
  options.name = "plain";
  const Table* const plain = Create(client.get(), options, 1);
  const auto layer = OutputLayer::Make(client.get(), tied);
  for (uint64_t step = 1; step <= 3; ++step) {
    const std::vector<float> rows = Pull(client.get(), tied);
    const OutputTwin twin{2, {rows.begin(), rows.end()}, {}};
    const std::vector<float> hidden = {0.5f, -1, 2, 0.25f};
    OutputTwin::Result want = twin.Run(hidden, {1, 4}, {1, 1});
    const std::vector<uint64_t> ids = {4, 0, 4};
    const std::vector<float> added = {1, 2, 3, 4, 5, 6};
    for (size_t i = 0; i < 6; ++i) want.row_gradient[2 * ids[i / 2] + i % 2] += added[i];
    const auto pass = (*layer)->Forward(hidden, {{1, 4}});
    ASSERT_TRUE(pass.ok()) << pass.status();
    std::vector<float> gradient(4);
    ASSERT_TRUE((*pass)->Backward({{1, 1}}, gradient.data()).ok());
    const absl::Status pushed =
        (*pass)->Push(step, {.added_ids = ids, .added_gradients = added.data()});
    ASSERT_TRUE(pushed.ok()) << pushed;
    const std::vector<float> gradients(want.row_gradient.begin(), want.row_gradient.end());
    const std::vector<uint64_t> all = AllRows(plain);
    const PushFeature out{plain, all, gradients.data()};
    ASSERT_TRUE(client->Push(step, {&out, 1}).Wait().status.ok());
    ExpectNear(Pull(client.get(), tied), Pull(client.get(), plain), 1e-6, "rows");
  }
}

// Logits come from all shards, in the order of the rows, and a bias is in them once.
TEST(OutputLayerTest, LogitsAreThoseOfTheTwin) {
  const TestSeed seed(43);
  Random random(seed.value());
  const auto client = Open("logits");
  const std::vector<float> rows = Randoms(&random, 1100 * 5, 1);
  const std::vector<float> hidden = Randoms(&random, 3 * 4, 1);
  const OutputTwin twin{5, {rows.begin(), rows.end()}, {.bias = true}};
  for (const uint32_t shards : {1, 2, 3, 7}) {
    const Table* const table =
        Create(client.get(), Classes(absl::StrCat("logits", shards), 1100, 5), shards);
    Assign(client.get(), table, 1, rows);
    const auto layer = OutputLayer::Make(client.get(), table, {.bias = true});
    const auto logits = (*layer)->Logits(hidden);
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (size_t t = 0; t < 3; ++t) {
      const std::vector<float> of_token(logits->begin() + 1100 * t,
                                        logits->begin() + 1100 * (t + 1));
      ExpectNear(of_token, twin.Logits(hidden.data() + 4 * t), 1e-6, "logits");
    }
  }
}

// A lookup over two shards has the gradient of one over one shard: nothing is multiplied by the
// number of shards.
TEST(OutputLayerTest, AGradientOfALookupDoesNotDependOnTheShards) {
  const TestSeed seed(47);
  Random random(seed.value());
  const auto client = Open("lookup");
  const std::vector<float> rows = Randoms(&random, 10 * 3, 1);
  const std::vector<uint64_t> ids = {9, 0, 4, 5, 0};  // of both halves
  const std::vector<float> gradients = Randoms(&random, ids.size() * 3, 1);
  std::vector<std::vector<float>> after;
  for (const uint32_t shards : {1, 2}) {
    const Table* const table =
        Create(client.get(), Classes(absl::StrCat("lookup", shards), 10, 3), shards);
    Assign(client.get(), table, 1, rows);
    const PushFeature out{table, ids, gradients.data()};
    ASSERT_TRUE(client->Push(2, {&out, 1}).Wait().status.ok());
    after.push_back(Pull(client.get(), table));
  }
  EXPECT_EQ(after[0], after[1]);
  EXPECT_FLOAT_EQ(after[0][9 * 3], rows[9 * 3] - gradients[0]);
}

// What travels is a matter of tokens and dim.
TEST(OutputLayerTest, BytesOnTheWireDoNotDependOnTheVocabulary) {
  const auto client = Open("wire");
  std::vector<uint64_t> bytes;
  for (const uint64_t rows : {100, 20'000}) {
    const Table* const table =
        Create(client.get(), Classes(absl::StrCat("wire", rows), rows, 8), 2);
    const auto layer = OutputLayer::Make(client.get(), table);
    const auto pass =
        (*layer)->Forward(std::vector<float>(8 * 64, 0.5f), std::vector<int64_t>(64, 7));
    ASSERT_TRUE(pass.ok()) << pass.status();
    std::vector<float> gradient(8 * 64);
    ASSERT_TRUE((*pass)->Backward(std::vector<float>(64, 1.0f), gradient.data()).ok());
    ASSERT_TRUE((*pass)->Push(1).ok());
    bytes.push_back((*pass)->wire_bytes());
  }
  // Ranges, sequences and the client's clock are written in as many bytes as they need.
  EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(bytes[1]), 64);
  EXPECT_LT(bytes[1], 5 * 64 * 8 * sizeof(float) + 64 * 100);
}

TEST(OutputLayerTest, SaysWhatIsAllowed) {
  const auto client = Open("refused");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Table* const table = Create(client.get(), Classes("refused", 10, 2), 1);
  const auto layer = OutputLayer::Make(client.get(), table);
  ASSERT_TRUE(layer.ok());
  const auto forward = [&](const std::vector<float>& hidden, const std::vector<int64_t>& targets) {
    return std::string((*layer)->Forward(hidden, targets).status().message());
  };
  EXPECT_THAT(forward({1, 2}, {10}), HasSubstr("targets: element 0 is 10, allowed: 0..9"));
  EXPECT_THAT(forward({1, 2}, {-1}), HasSubstr("targets: element 0 is -1, allowed: 0..9"));
  EXPECT_THAT(forward({1, 2, 3}, {1}), HasSubstr("hidden has 3 elements, allowed: 2, 2 for each"));
  EXPECT_THAT(forward({1, nan}, {1}), HasSubstr("hidden: element 1 of token 0 is nan"));
  EXPECT_THAT(forward(std::vector<float>(2 * 16'385), std::vector<int64_t>(16'385)),
              HasSubstr("16385 tokens of 2 elements are 131080 bytes, allowed: 16384 tokens"));
  const auto make = [&](const TableOptions& of, const OutputLayerOptions& options) {
    const auto made = client->CreateTable(of, /*if_not_exists=*/true);
    EXPECT_TRUE(made.ok()) << made.status();
    return std::string(OutputLayer::Make(client.get(), *made, options).status().message());
  };
  TableOptions hashed = Classes("hashed", 10, 2);
  hashed.hashed = true;
  EXPECT_THAT(make(hashed, {}), HasSubstr("table hashed is hashed"));
  TableOptions sliced = Classes("sliced", 10, 2);
  sliced.column_slices = 2;
  EXPECT_THAT(make(sliced, {}), HasSubstr("table sliced has 2 column slices"));
  EXPECT_THAT(make(Classes("narrow", 10, 1), {.bias = true}), HasSubstr("table narrow has dim 1"));
  EXPECT_THAT(make(Classes("refused", 10, 2), {.label_smoothing = 1.5f}),
              HasSubstr("label_smoothing is 1.5, allowed: 0 to 1"));
  EXPECT_THAT(make(Classes("refused", 10, 2), {.z_loss = -1}), HasSubstr("z_loss is -1, allowed"));
  const auto pass = (*layer)->Forward({{1, 2}}, {{1}});
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_THAT(std::string((*pass)->Push(1).message()), HasSubstr("after its Backward"));
  std::vector<float> gradient(2);
  EXPECT_THAT(std::string((*pass)->Backward({{1, 2}}, gradient.data()).message()),
              HasSubstr("scales has 2 elements, allowed: 1"));
  ASSERT_TRUE((*pass)->Backward({{1}}, gradient.data()).ok());
  const std::vector<uint64_t> outside = {10};
  EXPECT_THAT(
      std::string(
          (*pass)->Push(1, {.added_ids = outside, .added_gradients = gradient.data()}).message()),
      HasSubstr("added_ids: 10 is outside table refused, allowed: 0..9"));
  ASSERT_TRUE((*pass)->Push(5).ok());
  const auto next = (*layer)->Forward({{1, 2}}, {{1}});
  ASSERT_TRUE((*next)->Backward({{1}}, gradient.data()).ok());
  EXPECT_THAT(std::string((*next)->Push(5).message()), HasSubstr("step 5 comes after step 5"));
}

}  // namespace output_layer_test
}  // namespace hotbed
