// Composed tables over the local engine, against a twin: its rows are made by hand in double
// precision, and its gradients are differences of the loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/tables/composition.h"
#include "hotbed/client.h"
#include "hotbed/composed.h"
#include "hotbed/embedding.h"
#include "hotbed/local.h"
#include "hotbed/top_k.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace composed_table_test {

constexpr double kTolerance = 1e-6;
constexpr float kRate = 0.1f;

struct Bags {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> lengths;
  std::vector<float> weights;  // or none
  BagPooling pooling = BagPooling::kSum;
};

using Matrix = std::vector<std::vector<double>>;

// The parts of a composed table as matrices.
class Twin {
 public:
  Twin(Client* client, const ComposedTable* table) : options_(table->options()) {
    for (const Table* const part : table->parts()) {
      const uint64_t rows = part->options().rows;
      std::vector<uint64_t> ids(rows);
      for (uint64_t i = 0; i < rows; ++i) ids[i] = i;
      std::vector<float> values(rows * part->dim());
      const PullFeature pull{part, ids, values.data()};
      EXPECT_TRUE(client->Pull({&pull, 1}).Wait().ok());
      Matrix& matrix = parts_[part->name().substr(part->name().rfind('/') + 1)];
      for (uint64_t i = 0; i < rows; ++i) {
        matrix.emplace_back(values.begin() + i * part->dim(),
                            values.begin() + (i + 1) * part->dim());
      }
    }
  }

  // One row per bag.
  Matrix Rows(const Bags& bags) const {
    Matrix out;
    size_t at = 0;
    for (const uint32_t length : bags.lengths) {
      std::vector<uint64_t> ids;
      std::vector<double> weights;
      double divisor = 0;
      for (uint32_t k = 0; k < length; ++k, ++at) {
        const double weight = bags.weights.empty() ? 1.0 : double{bags.weights[at]};
        const uint64_t id = bags.ids[at];
        if (options_.has_padding_id && id == options_.padding_id) continue;
        divisor += weight;
        if (id >= options_.rows) continue;
        ids.push_back(id);
        weights.push_back(weight);
      }
      if (bags.pooling != BagPooling::kMean) divisor = 1;
      out.push_back(ids.empty() ? std::vector<double>(options_.dim, 0.0)
                                : Row(ids, weights, bags.pooling, divisor));
    }
    return out;
  }

  // Subtracts the rate times the gradient of sum(gradients * Rows(bags)).
  void Step(const Bags& bags, const Matrix& gradients) {
    constexpr double kApart = 1e-4;
    const auto loss = [&] {
      double sum = 0;
      const Matrix rows = Rows(bags);
      for (size_t b = 0; b < rows.size(); ++b) {
        for (size_t d = 0; d < rows[b].size(); ++d) sum += rows[b][d] * gradients[b][d];
      }
      return sum;
    };
    std::map<std::string, Matrix> next = parts_;
    for (auto& [name, matrix] : parts_) {
      if (name == "index") continue;
      for (size_t r = 0; r < matrix.size(); ++r) {
        for (size_t c = 0; c < matrix[r].size(); ++c) {
          const double value = matrix[r][c];
          matrix[r][c] = value + kApart;
          const double above = loss();
          matrix[r][c] = value - kApart;
          const double below = loss();
          matrix[r][c] = value;
          next[name][r][c] = value - kRate * (above - below) / (2 * kApart);
        }
      }
    }
    parts_ = std::move(next);
  }

  void ExpectEqual(const Twin& other) const {
    for (const auto& [name, matrix] : parts_) {
      for (size_t r = 0; r < matrix.size(); ++r) {
        for (size_t c = 0; c < matrix[r].size(); ++c) {
          ASSERT_NEAR(matrix[r][c], other.parts_.at(name)[r][c], kTolerance)
              << name << " row " << r << " column " << c;
        }
      }
    }
  }

 private:
  std::vector<double> Row(const std::vector<uint64_t>& ids, const std::vector<double>& weights,
                          BagPooling pooling, double divisor) const {
    const Composition& c = options_.composition;
    const auto pool = [&](const Matrix& rows, const std::vector<double>& by) {
      std::vector<double> sum(rows[0].size(), 0.0);
      for (size_t d = 0; d < sum.size(); ++d) {
        if (pooling == BagPooling::kMax) sum[d] = rows[0][d];
        for (size_t k = 0; k < rows.size(); ++k) {
          if (pooling == BagPooling::kMax) {
            sum[d] = std::max(sum[d], rows[k][d]);
          } else {
            sum[d] += by[k] * rows[k][d] / divisor;
          }
        }
      }
      return sum;
    };
    if (c.form == ComposeForm::kQuotientRemainder) {
      Matrix q, r, joined;
      for (const uint64_t id : ids) {
        q.push_back(parts_.at("quotient")[id / c.buckets]);
        r.push_back(parts_.at("remainder")[id % c.buckets]);
        joined.push_back(Joined(q.back(), r.back()));
      }
      return c.pool_first ? Joined(pool(q, weights), pool(r, weights)) : pool(joined, weights);
    }
    std::vector<double> out(options_.dim, 0.0);
    bool any = false;
    const uint64_t each = options_.rows / c.block_dims.size();
    for (size_t b = 0; b < c.block_dims.size(); ++b) {
      Matrix rows;
      std::vector<double> by;
      for (size_t k = 0; k < ids.size(); ++k) {
        const uint64_t rank = Rank(ids[k]);
        const uint64_t block = std::min<uint64_t>(rank / each, c.block_dims.size() - 1);
        if (block != b) continue;
        rows.push_back(parts_.at(absl::StrCat("block", b))[rank - block * each]);
        by.push_back(weights[k]);
      }
      if (rows.empty()) continue;
      const std::vector<double> pooled = pool(rows, by);
      for (uint32_t e = 0; e < options_.dim; ++e) {
        double value = 0;
        if (c.block_dims[b] == options_.dim) {
          value = pooled[e];
        } else {
          for (size_t j = 0; j < pooled.size(); ++j) {
            value += pooled[j] * parts_.at(absl::StrCat("map", b))[e][j];
          }
        }
        const bool max = pooling == BagPooling::kMax && any;
        out[e] = max ? std::max(out[e], value) : out[e] + value;
      }
      any = true;
    }
    return out;
  }

  uint64_t Rank(uint64_t id) const {
    if (options_.composition.form != ComposeForm::kFrequency) return id;
    const std::vector<double>& row = parts_.at("index")[id];
    return static_cast<uint64_t>(row[0] * 16777216.0 + row[1]);
  }

  std::vector<double> Joined(const std::vector<double>& q, const std::vector<double>& r) const {
    std::vector<double> out = q;
    switch (options_.composition.combine) {
      case Combine::kMultiply:
        for (size_t d = 0; d < out.size(); ++d) out[d] *= r[d];
        break;
      case Combine::kAdd:
        for (size_t d = 0; d < out.size(); ++d) out[d] += r[d];
        break;
      case Combine::kConcatenate:
        out.insert(out.end(), r.begin(), r.end());
    }
    return out;
  }

  const TableOptions options_;
  std::map<std::string, Matrix> parts_;
};

class ComposedTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = ConnectLocal("", {.host_bytes = 128 << 20}, {});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  TableOptions Options(const std::string& name) {
    TableOptions options;
    options.name = name;
    options.rows = 30;
    options.dim = 4;
    options.seed = 7;
    options.optimizer.kind = OptimizerKind::kSgd;
    options.optimizer.learning_rate = kRate;
    options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
    options.durability = Durability::kCheckpoint;
    options.bounds_mode = BoundsMode::kZero;
    options.has_padding_id = true;
    options.padding_id = static_cast<uint64_t>(int64_t{-2});
    return options;
  }
  const ComposedTable* Create(const TableOptions& options) {
    const auto table = client_->CreateTable(options);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? ComposedTable::From(*table) : nullptr;
  }

  static Bags RandomBags(BagPooling pooling, bool weighted, Random* random) {
    Bags bags;
    bags.pooling = pooling;
    for (int b = 0; b < 6; ++b) {
      bags.lengths.push_back(static_cast<uint32_t>(random->Uniform(5)));
      for (uint32_t k = 0; k < bags.lengths.back(); ++k) {
        bags.ids.push_back(random->Uniform(32));  // 28 is padding, 30 and 31 are outside
        if (weighted) bags.weights.push_back(0.25f * static_cast<float>(1 + random->Uniform(8)));
      }
    }
    return bags;
  }

  Matrix Pulled(const Table* table, const Bags& bags) {
    std::vector<float> rows(bags.lengths.size() * table->dim(), -1.0f);
    PullFeature pull{table, bags.ids, rows.data()};
    pull.bag_lengths = bags.lengths;
    pull.pooling = bags.pooling;
    if (!bags.weights.empty()) pull.id_weights = bags.weights.data();
    const absl::Status status = client_->Pull({&pull, 1}).Wait();
    EXPECT_TRUE(status.ok()) << status;
    Matrix out;
    for (size_t b = 0; b < bags.lengths.size(); ++b) {
      out.emplace_back(rows.begin() + b * table->dim(), rows.begin() + (b + 1) * table->dim());
    }
    return out;
  }

  // Trains three steps through Embeddings, and compares rows and parts.
  void CompareWithTwin(const ComposedTable* table) {
    ASSERT_NE(table, nullptr);
    const TestSeed seed(42);
    Random random(seed.value());
    Twin twin(client_.get(), table);
    uint64_t step = 0;
    for (const BagPooling pooling : {BagPooling::kSum, BagPooling::kMean, BagPooling::kMax}) {
      const bool weighted = pooling != BagPooling::kMax && random.Uniform(2) == 0;
      const Bags bags = RandomBags(pooling, weighted, &random);
      SCOPED_TRACE(absl::StrCat(table->name(), " pooling ", static_cast<int>(pooling)));
      ExpectNear(Pulled(table, bags), twin.Rows(bags));
      const auto embeddings = Embeddings::Create(
          client_.get(), {{"f", table, static_cast<Pooling>(static_cast<int>(pooling))}});
      ASSERT_TRUE(embeddings.ok()) << embeddings.status();
      const auto batch = JaggedBatch::FromLengths({"f"}, bags.lengths, bags.ids, bags.weights);
      ASSERT_TRUE(batch.ok()) << batch.status();
      EmbeddingOutput output;
      const absl::Status forward = (*embeddings)->Forward(*batch, &output).Wait();
      ASSERT_TRUE(forward.ok()) << forward;
      const Matrix rows = twin.Rows(bags);
      std::vector<float> gradients(output.values.size());
      Matrix as_matrix;
      for (size_t b = 0; b < rows.size(); ++b) {
        as_matrix.emplace_back();
        for (uint32_t d = 0; d < table->dim(); ++d) {
          const size_t at = b * table->dim() + d;
          EXPECT_NEAR(output.values[at], rows[b][d], kTolerance);
          gradients[at] = 0.125f * (static_cast<float>(random.Uniform(17)) - 8.0f);
          as_matrix.back().push_back(gradients[at]);
        }
      }
      const PushResult pushed =
          (*embeddings)->Backward(++step, *batch, output, {gradients, {}}).Wait();
      ASSERT_TRUE(pushed.status.ok()) << pushed.status;
      twin.Step(bags, as_matrix);
      twin.ExpectEqual(Twin(client_.get(), table));
    }
  }

  static void ExpectNear(const Matrix& rows, const Matrix& expected) {
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t b = 0; b < rows.size(); ++b) {
      for (size_t d = 0; d < rows[b].size(); ++d) {
        EXPECT_NEAR(rows[b][d], expected[b][d], kTolerance) << "bag " << b << " element " << d;
      }
    }
  }

  std::unique_ptr<Client> client_;
};

TEST_F(ComposedTableTest, QuotientAndRemainderAreAsTheTwin) {
  for (const Combine combine : {Combine::kMultiply, Combine::kAdd, Combine::kConcatenate}) {
    for (const bool pool_first : {false, true}) {
      TableOptions options = Options(
          absl::StrCat(kCombineWords[static_cast<size_t>(combine)], pool_first ? "-pool" : ""));
      options.composition.form = ComposeForm::kQuotientRemainder;
      options.composition.combine = combine;
      options.composition.pool_first = pool_first;
      options.composition.buckets = pool_first ? 4 : 0;
      CompareWithTwin(Create(options));
    }
  }
}

TEST_F(ComposedTableTest, BlocksAreAsTheTwin) {
  for (const std::vector<uint32_t>& dims :
       {std::vector<uint32_t>{2}, std::vector<uint32_t>{4}, std::vector<uint32_t>{4, 1, 3}}) {
    TableOptions options = Options(absl::StrCat("blocks", dims.size(), "-", dims[0]));
    options.composition.form = ComposeForm::kBlock;
    options.composition.block_dims = dims;
    CompareWithTwin(Create(options));
  }
}

TEST_F(ComposedTableTest, FrequencyBlocksAreAsTheTwin) {
  std::vector<uint64_t> counts(30);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = (i * 7) % 30 * ((i * 7) % 30);
  const auto made = CreateTableByFrequency(client_.get(), Options("frequency"), counts, 3);
  ASSERT_TRUE(made.ok()) << made.status();
  const ComposedTable* const table = ComposedTable::From(*made);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->options().composition.block_dims, (std::vector<uint32_t>{4, 2, 2}));
  CompareWithTwin(table);
  // Without counts, an equal one is opened and none is made.
  TableOptions again = Options("frequency");
  again.rows = 30;
  again.composition = table->options().composition;
  EXPECT_TRUE(client_->CreateTable(again, /*if_not_exists=*/true).ok());
  again.name = "other";
  const absl::Status refused = client_->CreateTable(again).status();
  EXPECT_TRUE(absl::StrContains(refused.message(), "give a histogram")) << refused;
  EXPECT_TRUE(absl::IsNotFound(client_->OpenTable("other/index").status()));
}

TEST_F(ComposedTableTest, ColumnSlicesOfThePartsChangeNothing) {
  TableOptions options = Options("sliced");
  options.column_slices = 2;
  options.composition.form = ComposeForm::kQuotientRemainder;
  CompareWithTwin(Create(options));
}

// The published example: q = [[1,2],[3,4]], r = [[1,1],[2,0]], two buckets, a bag of ids 0 and 3.
TEST_F(ComposedTableTest, PoolingBeforeOrAfterTheProductDiffers) {
  for (const bool pool_first : {false, true}) {
    TableOptions options = Options(pool_first ? "before" : "after");
    options.rows = 4;
    options.dim = 2;
    options.has_padding_id = false;
    options.composition.form = ComposeForm::kQuotientRemainder;
    options.composition.pool_first = pool_first;
    const ComposedTable* const table = Create(options);
    ASSERT_NE(table, nullptr);
    const std::vector<uint64_t> ids = {0, 1};
    const std::vector<float> q = {1, 2, 3, 4}, r = {1, 1, 2, 0};
    const PushFeature push[] = {{table->parts()[0], ids, q.data()},
                                {table->parts()[1], ids, r.data()}};
    PushOptions assign;
    assign.assign = true;
    ASSERT_TRUE(client_->Push(1, push, assign).Wait().status.ok());
    const Matrix rows = Pulled(table, {{0, 3}, {2}, {}, BagPooling::kSum});
    EXPECT_EQ(rows[0], pool_first ? (std::vector<double>{12, 6}) : (std::vector<double>{7, 2}));
  }
}

TEST_F(ComposedTableTest, OneNameForAllCalls) {
  TableOptions options = Options("user");
  options.composition.form = ComposeForm::kQuotientRemainder;
  const ComposedTable* const table = Create(options);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(*client_->OpenTable("user"), table);
  EXPECT_EQ(table->saved_parameters(), 30 * 4 - 2 * 6 * 4);
  EXPECT_EQ(table->options().padding_id, 28u);

  TableOptions plain = Options("user");
  const absl::Status taken = client_->CreateTable(plain).status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  EXPECT_TRUE(absl::StrContains(taken.message(), "composed table")) << taken;
  options.name = "user/quotient";
  const absl::Status composed_of_composed = client_->CreateTable(options).status();
  EXPECT_TRUE(absl::StrContains(composed_of_composed.message(), "is a part of composed table"))
      << composed_of_composed;
  const absl::Status part = client_->DropTable("user/quotient");
  EXPECT_TRUE(absl::StrContains(part.message(), "drop \"user\"")) << part;

  // Rows that were pushed exist, if all of their parts do.
  const std::vector<uint64_t> ids = {7, 8, 28, 31};
  std::vector<float> gradients(ids.size() * 4, 1.0f), rows(gradients.size(), -1.0f);
  std::vector<uint8_t> exists(ids.size(), 9);
  const PushFeature push{table, {ids.data(), 1}, gradients.data()};
  ASSERT_TRUE(client_->Push(1, {&push, 1}).Wait().status.ok());
  const PushFeature nothing{table, {ids.data() + 2, 2}, gradients.data()};  // padding and outside
  ASSERT_TRUE(client_->Push(2, {&nothing, 1}).Wait().status.ok());
  PullFeature pull{table, ids, rows.data(), RowType::kFp32, exists.data()};
  ASSERT_TRUE(client_->Lookup({&pull, 1}).Wait().ok());
  EXPECT_EQ(exists, (std::vector<uint8_t>{1, 0, 0, 0}));
  EXPECT_EQ(std::vector<float>(rows.begin() + 8, rows.end()), std::vector<float>(8, 0.0f));

  ASSERT_TRUE(client_->DropTable("user").ok());
  EXPECT_TRUE(absl::IsNotFound(client_->OpenTable("user").status()));
  EXPECT_TRUE(absl::IsNotFound(client_->OpenTable("user/remainder").status()));
  EXPECT_TRUE(client_->CreateTable(plain).ok());
}

TEST_F(ComposedTableTest, AGroupIsCreatedWholeOrNotAtAll) {
  TableOptions plain = Options("user/remainder");
  ASSERT_TRUE(client_->CreateTable(plain).ok());
  TableOptions options = Options("user");
  options.composition.form = ComposeForm::kQuotientRemainder;
  EXPECT_TRUE(absl::IsAlreadyExists(client_->CreateTable(options).status()));
  EXPECT_TRUE(absl::IsNotFound(client_->OpenTable("user/quotient").status()));
  EXPECT_TRUE(absl::IsNotFound(client_->OpenTable("user").status()));
}

TEST_F(ComposedTableTest, CallsThatNoPartCanAnswerAreRefused) {
  TableOptions options = Options("user");
  options.bounds_mode = BoundsMode::kError;
  options.composition.form = ComposeForm::kQuotientRemainder;
  options.composition.pool_first = true;
  const ComposedTable* const table = Create(options);
  ASSERT_NE(table, nullptr);
  const auto expect = [](const absl::Status& status, const std::string& text) {
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  };
  std::vector<uint64_t> ids = {1, 30};
  std::vector<float> rows(8, 1.0f);
  PullFeature pull{table, ids, rows.data()};
  expect(client_->Pull({&pull, 1}).Wait(), "id 30 at position 1 is outside the table's 0..29");
  ids[1] = 2;
  std::vector<uint8_t> missing(2);
  pull.missing = missing.data();
  expect(client_->Pull({&pull, 1}).Wait(), "`missing` is set");
  const PushFeature push{table, ids, rows.data()};
  PushOptions assign;
  assign.assign = true;
  expect(client_->Push(1, {&push, 1}, assign).Wait().status, "the first is user/quotient");
  expect(TopK(client_.get(), table, {rows.data(), 4}, 1).status(), "is composed");
  expect(Embeddings::Create(client_.get(), {{"f", table, Pooling::kSum, "", true}}).status(),
         "scale_by_frequency");
  const auto embeddings = Embeddings::Create(client_.get(), {{"f", table, Pooling::kSum}});
  ASSERT_TRUE(embeddings.ok());
  const auto batch = JaggedBatch::FromLengths({"f"}, {2}, ids);
  EmbeddingOutput output;
  ASSERT_TRUE((*embeddings)->Forward(*batch, &output).Wait().ok());
  expect((*embeddings)->Gradients(*batch, output, {{rows.data(), 4}, {}}).status(),
         "cannot be kept by id");
}

}  // namespace composed_table_test
}  // namespace hotbed
