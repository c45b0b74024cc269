// Calls that take what can be had: at the deadline, or where a shard is damaged, the other rows are
// flagged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "client/pull/pull_call.h"
#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"

namespace hotbed {
namespace partial_pull_test {

using ::testing::HasSubstr;

class PartialPullTest : public testing::Test {
 protected:
  // Ids below 50 are on server 0, the others on server 1. The row of an id is all -id.
  void SetUp() override {
    cluster_.AddTable("t", 100, 4, 2);
    ClientOptions options;
    options.deadline = absl::Seconds(20);
    options.session_name = "partial-test";
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    t_ = *client_->OpenTable("t");
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
    for (uint64_t id = 0; id < 100; ++id) {
      ids.push_back(id);
      gradients.insert(gradients.end(), 4, static_cast<float>(id));
    }
    const PushFeature feature{t_, ids, gradients.data()};
    ASSERT_TRUE(client_->Push(1, {&feature, 1}).Wait().status.ok());
    // All connections are made before a server falls silent.
    const PullFeature all = Feature();
    ASSERT_TRUE(client_->Lookup({&all, 1}).Wait().ok());
    ASSERT_TRUE(client_->Pull({&all, 1}).Wait().ok());
    options_.deadline = absl::Seconds(3);  // long enough for the server that answers
  }
  // As `ids_`, or the bags of `lengths_`.
  PullFeature Feature() {
    const size_t rows = lengths_.empty() ? ids_.size() : lengths_.size();
    rows_.assign(rows * 4, 7.0f);
    missing_.assign(rows, 9);
    exists_.assign(ids_.size(), 9);
    PullFeature feature{t_, ids_, rows_.data(), RowType::kFp32, exists_.data(), missing_.data()};
    feature.bag_lengths = lengths_;
    return feature;
  }
  std::vector<float> FirstColumn() const {
    std::vector<float> out;
    for (size_t i = 0; i < rows_.size(); i += 4) {
      for (size_t c = 1; c < 4; ++c) EXPECT_EQ(rows_[i + c], rows_[i]);
      out.push_back(rows_[i]);
    }
    return out;
  }

  FakeCluster cluster_{2};
  std::unique_ptr<Client> client_;
  const Table* t_ = nullptr;
  PullOptions options_;
  std::vector<uint64_t> ids_ = {3, 70, 5, 70, 3, 99};
  std::vector<uint32_t> lengths_;
  std::vector<float> rows_;
  std::vector<uint8_t> exists_, missing_;
};

TEST_F(PartialPullTest, NothingIsMissingWhereAllAnswer) {
  const PullFeature feature = Feature();
  ASSERT_TRUE(client_->Lookup({&feature, 1}).Wait().ok());
  EXPECT_EQ(FirstColumn(), (std::vector<float>{-3, -70, -5, -70, -3, -99}));
  EXPECT_EQ(missing_, std::vector<uint8_t>(6, 0));
  EXPECT_EQ(exists_, std::vector<uint8_t>(6, 1));
  EXPECT_EQ(client_->Stats().rows_missing, 0u);
}

TEST_F(PartialPullTest, RowsOfASilentServerAreFlaggedAtTheDeadline) {
  cluster_.SetHanging(1, true);
  for (const bool lookup : {true, false}) {
    const PullFeature feature = Feature();
    const Future<absl::Status> call =
        lookup ? client_->Lookup({&feature, 1}, options_) : client_->Pull({&feature, 1}, options_);
    ASSERT_TRUE(call.Wait().ok()) << call.Wait();
    EXPECT_EQ(FirstColumn(), (std::vector<float>{-3, 0, -5, 0, -3, 0}));
    EXPECT_EQ(missing_, (std::vector<uint8_t>{0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(exists_, (std::vector<uint8_t>{1, 0, 1, 0, 1, 0}));
  }
  EXPECT_EQ(client_->Stats().rows_missing, 6u);
  PullFeature whole = Feature();
  whole.missing = nullptr;
  options_.deadline = absl::Milliseconds(50);
  EXPECT_EQ(client_->Lookup({&whole, 1}, options_).Wait().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(PartialPullTest, ACallThatItsOwnClientHasNoRoomForIsAnsweredWithoutRows) {
  ClientOptions options;
  options.deadline = absl::Seconds(20);
  options.session_name = "partial-test-room";
  options.pulls_in_flight_max = 1;
  auto client = Client::Connect(cluster_.target(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  const Table* const table = *(*client)->OpenTable("t");
  cluster_.SetHanging(1, true);
  std::vector<float> waiting_rows(24);
  const PullFeature waiting{table, ids_, waiting_rows.data()};
  const Future<absl::Status> first = (*client)->Lookup({&waiting, 1});
  options_.deadline = absl::Milliseconds(20);
  PullFeature feature = Feature();
  feature.table = table;
  EXPECT_TRUE((*client)->Lookup({&feature, 1}, options_).Wait().ok());
  EXPECT_EQ(missing_, std::vector<uint8_t>(6, 1));
  EXPECT_EQ(exists_, std::vector<uint8_t>(6, 0));
  EXPECT_EQ(FirstColumn(), std::vector<float>(6, 0));
  lengths_ = {2, 4};
  feature = Feature();
  feature.table = table;
  EXPECT_TRUE((*client)->Lookup({&feature, 1}, options_).Wait().ok());
  EXPECT_EQ(missing_, std::vector<uint8_t>(2, 1));
  EXPECT_EQ(FirstColumn(), std::vector<float>(2, 0));
  EXPECT_EQ((*client)->Stats().rows_missing, 8u);
  feature.missing = nullptr;
  EXPECT_EQ((*client)->Lookup({&feature, 1}, options_).Wait().code(),
            absl::StatusCode::kDeadlineExceeded);
  cluster_.SetHanging(1, false);
  EXPECT_TRUE(first.Wait().ok()) << first.Wait();
}

TEST_F(PartialPullTest, ABagOfWhichAnIdIsMissingIsMissing) {
  cluster_.SetHanging(1, true);
  ids_ = {3, 70, 5, 6, 99, 98};
  lengths_ = {2, 2, 0, 2};
  PullFeature feature = Feature();
  ASSERT_TRUE(client_->Lookup({&feature, 1}, options_).Wait().ok());
  EXPECT_EQ(FirstColumn(), (std::vector<float>{0, -11, 0, 0}));
  EXPECT_EQ(missing_, (std::vector<uint8_t>{1, 0, 0, 1}));
  feature = Feature();
  std::vector<uint32_t> arg_max(16, 7);
  feature.pooling = BagPooling::kMax;
  feature.arg_max = arg_max.data();
  ASSERT_TRUE(client_->Lookup({&feature, 1}, options_).Wait().ok());
  EXPECT_EQ(FirstColumn(), (std::vector<float>{0, -5, 0, 0}));
  EXPECT_EQ(arg_max[0], kArgMaxOfNothing);
  EXPECT_EQ(arg_max[4], 0u);
}

TEST_F(PartialPullTest, ADamagedShardIsNotWaitedFor) {
  cluster_.set_pull_script([](int server, const PullAsk&) -> std::optional<v1::SegmentReply> {
    if (server == 0) return std::nullopt;
    v1::SegmentReply damaged;
    damaged.set_code(v1::CORRUPT);
    return damaged;
  });
  PullFeature feature = Feature();
  ASSERT_TRUE(client_->Lookup({&feature, 1}).Wait().ok());
  EXPECT_EQ(missing_, (std::vector<uint8_t>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(FirstColumn(), (std::vector<float>{-3, 0, -5, 0, -3, 0}));
  feature.missing = nullptr;
  EXPECT_EQ(client_->Lookup({&feature, 1}).Wait().code(), absl::StatusCode::kDataLoss);
}

TEST_F(PartialPullTest, AllFeaturesOrNone) {
  PullFeature features[2] = {Feature(), Feature()};
  features[1].missing = nullptr;
  const absl::Status status = client_->Lookup(features).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("all or none"));
}

// Both ways of taking a part: the first answer counts, and later ones see that it was taken.
TEST(PartStateTest, APartIsTakenOnceOrGivenUp) {
  PullScratch scratch;
  scratch.part_states.assign(3, 0);
  for (const uint32_t part : {0, 1, 2}) scratch.BeginFirst(part);
  EXPECT_FALSE(scratch.GiveUpPart(0)) << "a message asks for it";
  EXPECT_TRUE(scratch.TakePartAlone(0));
  EXPECT_TRUE(scratch.TakePart(1));
  for (const uint32_t part : {0, 1}) {
    EXPECT_TRUE(scratch.PartIsTaken(part));
    EXPECT_FALSE(scratch.TakePart(part));
    EXPECT_FALSE(scratch.TakePartAlone(part));
    EXPECT_FALSE(scratch.LosePart(part)) << "its answer was taken";
  }
  EXPECT_TRUE(scratch.LosePart(2));
  EXPECT_TRUE(scratch.GiveUpPart(2));
  EXPECT_FALSE(scratch.TakePartAlone(2));
  EXPECT_FALSE(scratch.PartIsTaken(2));
}

}  // namespace partial_pull_test
}  // namespace hotbed
