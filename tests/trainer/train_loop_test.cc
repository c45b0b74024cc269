// Goal: the loop trains on each example once, with any number of workers, and stops at the first
// error. Method: rows in local maps, a planted low-rank rating matrix.
#include "trainer/train_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/trainer/map_row_source.h"
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

// Records the learning rate of each push.
class NotingSource : public MapRowSource {
 public:
  NotingSource(MapRows* rows, std::vector<float>* rates) : MapRowSource(rows), rates_(rates) {}
  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override {
    rates_->push_back(learning_rate);
    return MapRowSource::Push(step, columns, learning_rate);
  }

 private:
  std::vector<float>* const rates_;
};

TEST_F(TrainLoopTest, TheLearningRateComesUpOverFiftyBatches) {
  options_.batch_size = 20;
  std::vector<float> rates;
  const auto report = Train(
      options_, *data_, 1,
      [&](int) { return std::unique_ptr<RowSource>(new NotingSource(&rows_, &rates)); },
      [](const TrainProgress&) {});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_GT(rates.size(), 100u);
  EXPECT_FLOAT_EQ(rates[0], options_.learning_rate / 50);
  EXPECT_FLOAT_EQ(rates[24], options_.learning_rate / 2);
  EXPECT_FLOAT_EQ(rates[50], options_.learning_rate);
  // Later epochs start at the decayed rate and do not warm up again.
  const float last = options_.learning_rate * std::pow(options_.learning_rate_decay,
                                                       static_cast<float>(options_.epochs - 1));
  EXPECT_FLOAT_EQ(rates.back(), last);
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
