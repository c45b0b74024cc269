// Goal: the loop trains on each example once, with any number of workers, and stops at the first
// error. Method: rows in local maps, a planted low-rank rating matrix.
#include "trainer/train_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <deque>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hotbed/push_size.h"
#include "tests/trainer/map_row_source.h"
#include "trainer/criteo_format.h"
#include "trainer/datagen.h"
#include "trainer/ratings_format.h"

namespace hotbed {
namespace train_loop_test {

class TrainLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Random random(11);
    std::vector<std::array<double, 2>> users(60), items(50);
    for (auto& u : users) u = {random.Double() - 0.5, random.Double() - 0.5};
    for (auto& i : items) i = {random.Double() - 0.5, random.Double() - 0.5};
    std::ofstream out(path_);
    for (size_t u = 0; u < users.size(); ++u) {
      for (size_t i = 0; i < items.size(); ++i) {
        out << u << "\t" << i << "\t"
            << 3 + 6 * (users[u][0] * items[i][0] + users[u][1] * items[i][1]) << "\n";
      }
    }
    out.close();
    DatasetOptions data;
    data.path = path_;
    data.format = DataFormat::kRatings;
    data.fields = 2;
    data.held_out_fraction = 0.2;
    data_ = Dataset::Open(data).value();
    options_.layout = RatingsLayout("r");
    options_.shape = {.fields = 2, .dim = 5, .loss = Loss::kSquared, .offset = 3};
    options_.epochs = 60;
    options_.batch_size = 64;
    options_.learning_rate = 0.05f;
    rows_.dim = 5;
    rows_.adagrad = false;
    rows_.deviation = 0.1f;
    rows_.tables.resize(2);
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/train_loop_test_", getpid(), ".tsv");
  std::unique_ptr<Dataset> data_;
  TrainOptions options_;
  MapRows rows_;
};

TEST_F(TrainLoopTest, LearnsAPlantedLowRankMatrix) {
  for (int workers : {1, 3}) {
    rows_.tables.assign(2, {});
    uint64_t reports = 0;
    const auto report = Train(
        options_, *data_, workers,
        [&](int) { return std::unique_ptr<RowSource>(new MapRowSource(&rows_)); },
        [&](const TrainProgress&) { ++reports; });
    ASSERT_TRUE(report.ok()) << report.status();
    MapRowSource source(&rows_);
    const EvalReport eval =
        Evaluate(options_, *data_, Dataset::Part::kHeldOut, 0, 6, &source).value();
    EXPECT_GE(reports, 1u);
    EXPECT_EQ(report->total.examples, (3000 - eval.examples) * options_.epochs);
    EXPECT_LT(eval.rmse, 0.1) << workers << " workers";  // the labels' own deviation is about 0.7
    EXPECT_LT(report->epoch_loss.back(), 0.1 * report->epoch_loss.front());
  }
}

// Records the learning rate and the examples of each push.
class NotingSource : public MapRowSource {
 public:
  struct Noted {
    float rate;
    size_t examples;
  };
  NotingSource(MapRows* rows, std::vector<Noted>* pushes) : MapRowSource(rows), pushes_(pushes) {}
  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override {
    pushes_->push_back({learning_rate, columns[0].ids.size()});
    return MapRowSource::Push(step, columns, learning_rate);
  }

 private:
  std::vector<Noted>* const pushes_;
};

TEST_F(TrainLoopTest, PushesGrowWithTheExamplesTrained) {
  options_.batch_size = 50;
  options_.stable = {.per_root = 1};
  options_.parts = 2;
  std::vector<NotingSource::Noted> pushes;
  const auto report = Train(
      options_, *data_, 1,
      [&](int) { return std::unique_ptr<RowSource>(new NotingSource(&rows_, &pushes)); },
      [](const TrainProgress&) {});
  ASSERT_TRUE(report.ok()) << report.status();
  // Two trainers with pushes of 16 are more than the root of the first examples: the rate is lower.
  EXPECT_EQ(pushes[0].examples, 16u);
  EXPECT_NEAR(pushes[0].rate, options_.learning_rate * std::sqrt(32) / 2 / 16, 1e-6);
  // From 10,000 examples of both trainers on, pushes are whole batches at the full rate.
  EXPECT_EQ(pushes[pushes.size() - 2].examples, 50u);
  // Later epochs begin at the decayed rate, and with pushes as large as before.
  const float last = options_.learning_rate * std::pow(options_.learning_rate_decay,
                                                       static_cast<float>(options_.epochs - 1));
  EXPECT_FLOAT_EQ(pushes.back().rate, last);
}

// Tells of trainers in other processes.
class OneOfMany : public NotingSource {
 public:
  OneOfMany(MapRows* rows, std::vector<Noted>* pushes, uint64_t trainers)
      : NotingSource(rows, pushes), trainers_(trainers) {}
  uint64_t Trainers() override { return trainers_; }

 private:
  const uint64_t trainers_;
};

TEST_F(TrainLoopTest, TrainersOfOtherProcessesCountLikeThreads) {
  options_.batch_size = 50;
  options_.epochs = 1;
  options_.stable = {.per_root = 1};
  const auto pushes_of = [&](int parts, uint64_t trainers) {
    rows_.tables.assign(2, {});
    options_.parts = parts;
    std::vector<NotingSource::Noted> pushes;
    const auto report = Train(
        options_, *data_, 1,
        [&](int) { return std::unique_ptr<RowSource>(new OneOfMany(&rows_, &pushes, trainers)); },
        [](const TrainProgress&) {});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->total.trainers, std::max<uint64_t>(parts, trainers));
    std::vector<std::pair<float, size_t>> planned;
    for (const auto& push : pushes) planned.emplace_back(push.rate, push.examples);
    return planned;
  };
  const auto alone = pushes_of(1, 0);
  EXPECT_EQ(pushes_of(1, 1), alone);
  EXPECT_EQ(pushes_of(1, 4), pushes_of(4, 0));
  EXPECT_NE(pushes_of(1, 4), alone);
  EXPECT_EQ(pushes_of(4, 2), pushes_of(4, 0)) << "others are about to join";
}

TEST(PushSizeTest, AllTrainersTogetherStayBelowTheLimit) {
  for (const uint64_t trainers : {1, 3, 8, 64}) {
    for (const size_t batch : {1, 16, 128, 4096}) {
      for (const uint64_t trained : {0, 1000, 1000000, 1000000000}) {
        const StableExamples stable = {.per_root = 2};
        const PushSize size = PlanPush(stable, batch, trainers, trained);
        const double limit =
            2 * std::sqrt(static_cast<double>(trained + trainers * std::min<size_t>(16, batch)));
        EXPECT_GE(size.examples, std::min<size_t>(16, batch));
        EXPECT_LE(size.examples, batch);
        EXPECT_LE(size.rate, 1.0f);
        const double in_flight = static_cast<double>(size.examples * trainers);
        EXPECT_LE(in_flight * size.rate, limit * 1.0001);
        // The push is a whole batch, or the limit is reached but for rounding.
        EXPECT_TRUE(size.examples == batch || in_flight * size.rate > 0.9 * limit)
            << trainers << " trainers, batches of " << batch << ", " << trained << " trained";
      }
    }
  }
  EXPECT_EQ(PlanPush({}, 4096, 8, 0).examples, 4096u);
  EXPECT_EQ(PlanPush({.constant = 2048}, 4096, 8, 0).examples, 256u);
}

// Applies each push only when `lag` later ones have been given, as if other trainers were between.
class LaggingSource : public MapRowSource {
 public:
  LaggingSource(MapRows* rows, size_t lag) : MapRowSource(rows), lag_(lag) {}
  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override {
    Kept kept = {columns, {}, {}, learning_rate};
    for (const RowColumn& column : columns) {
      kept.ids.emplace_back(column.ids.begin(), column.ids.end());
      kept.gradients.emplace_back(column.gradients, column.gradients + column.ids.size() * kDim);
    }
    kept_.push_back(std::move(kept));
    if (kept_.size() > lag_) {
      Kept& oldest = kept_.front();
      for (size_t i = 0; i < oldest.columns.size(); ++i) {
        oldest.columns[i].ids = oldest.ids[i];
        oldest.columns[i].gradients = oldest.gradients[i].data();
      }
      MapRowSource::Push(step, oldest.columns, oldest.rate).Wait();
      kept_.pop_front();
    }
    return Future<PushResult>::Ready(PushResult{});
  }
  static constexpr int kDim = 6;

 private:
  struct Kept {
    std::vector<RowColumn> columns;
    std::vector<std::vector<uint64_t>> ids;
    std::vector<std::vector<float>> gradients;
    float rate;
  };
  const size_t lag_;
  std::deque<Kept> kept_;
};

// The AUC of one trainer whose pushes arrive `lag` pushes late, as those of `trainers` trainers do.
double AucOf(const Dataset& data, int trainers, size_t lag, size_t batch_size,
             StableExamples stable) {
  TrainOptions options;
  options.layout = CriteoLayout("c");
  options.shape = {.fields = 39, .dim = LaggingSource::kDim, .l2 = 0.001f};
  options.bias_table = 0;
  options.bias_id = kBiasId;
  options.epochs = 2;
  options.learning_rate = 0.04f;
  options.batch_size = batch_size;
  options.parts = trainers;
  // This worker makes the pushes of all trainers, but the loop takes it for one of several that
  // have trained as much: the examples that it counts are too many by this factor.
  options.stable = {.per_root = stable.per_root / std::sqrt(trainers)};
  MapRows rows;
  rows.dim = LaggingSource::kDim;
  rows.deviation = 0.05f;
  rows.initial_accumulator = 1.0f;
  rows.tables.resize(2);
  const auto report = Train(
      options, data, 1,
      [&](int) { return std::unique_ptr<RowSource>(new LaggingSource(&rows, lag)); },
      [](const TrainProgress&) {});
  EXPECT_TRUE(report.ok()) << report.status();
  MapRowSource source(&rows);
  return Evaluate(options, data, Dataset::Part::kHeldOut, 0, 1, &source).value().auc;
}

TEST(TrainQualityTest, EightTrainersWithLargeBatchesEndWhereOneWithSmallOnesDoes) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/train_quality_test_", getpid(), ".tsv");
  std::ofstream file(path);
  ASSERT_TRUE(GenerateCriteo({.rows = 40000, .seed = 1}, &file).ok());
  file.close();
  DatasetOptions data{.path = path, .fields = 39, .held_out_fraction = 0.2};
  const auto opened = Dataset::Open(data).value();
  const StableExamples stable = {.per_root = 1};
  const double one = AucOf(*opened, 1, 0, 128, stable);
  EXPECT_GT(one, 0.70);
  EXPECT_NEAR(AucOf(*opened, 8, 15, 4096, stable), one, 0.03);
  // The test can fail: the same pushes in whole batches at the full rate learn next to nothing.
  EXPECT_LT(AucOf(*opened, 8, 15, 4096, {}), one - 0.1);
  std::remove(path.c_str());
}

// Answers pushes from a thread of its own, some time later. Rows count when their push is answered,
// as with a cluster.
class LateSource : public MapRowSource {
 public:
  LateSource(MapRows* rows, std::atomic<uint64_t>* rows_in_all)
      : MapRowSource(rows), rows_in_all_(rows_in_all) {}
  ~LateSource() override {
    for (std::thread& thread : threads_) thread.join();
  }
  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override {
    const uint64_t before = MapRowSource::rows_pushed();
    const PushResult result = MapRowSource::Push(step, columns, learning_rate).Wait();
    const uint64_t rows = MapRowSource::rows_pushed() - before;
    *rows_in_all_ += rows;
    Promise<PushResult> promise;
    threads_.emplace_back([this, promise, result, rows]() mutable {
      absl::SleepFor(absl::Milliseconds(5));
      answered_ += rows;
      promise.Set(result);
    });
    return promise.future();
  }
  uint64_t rows_pushed() const override { return answered_; }

 private:
  std::atomic<uint64_t>* const rows_in_all_;
  std::atomic<uint64_t> answered_{0};
  std::vector<std::thread> threads_;
};

TEST_F(TrainLoopTest, RowsOfTheLastPushesAreCountedToo) {
  options_.epochs = 2;
  options_.batch_size = 1000;
  std::atomic<uint64_t> rows_in_all{0};
  const auto report = Train(
      options_, *data_, 2,
      [&](int) { return std::unique_ptr<RowSource>(new LateSource(&rows_, &rows_in_all)); },
      [](const TrainProgress&) {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(rows_in_all, 100u);
  EXPECT_EQ(report->total.rows_pushed, rows_in_all);
}

// Fails the n-th pull.
class FailingSource : public MapRowSource {
 public:
  using MapRowSource::MapRowSource;
  Future<absl::Status> Pull(const std::vector<RowColumn>& columns) override {
    if (++pulls_ == 5) return Future<absl::Status>::Ready(absl::UnavailableError("server gone"));
    return MapRowSource::Pull(columns);
  }

 private:
  int pulls_ = 0;
};

TEST_F(TrainLoopTest, TheFirstErrorEndsTheRun) {
  const auto report = Train(
      options_, *data_, 2,
      [&](int) { return std::unique_ptr<RowSource>(new FailingSource(&rows_)); },
      [](const TrainProgress&) {});
  EXPECT_EQ(report.status(), absl::UnavailableError("server gone"));
}

}  // namespace train_loop_test
}  // namespace hotbed
