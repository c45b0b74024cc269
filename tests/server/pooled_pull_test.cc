// Pooled segments on the wire: placed, answered and refused, over the fake host's rows.
#include <gmock/gmock.h>

#include "tests/kernels/pool_twin.h"
#include "tests/server/data_plane_fixture.h"

namespace hotbed {
namespace pooled_pull_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PooledPullTest : public DataPlaneTest {
 protected:
  static v1::PullGroup* AddBags(ShardId shard, Epoch epoch, v1::Pooling pooling,
                                const std::vector<std::vector<uint64_t>>& bags,
                                v1::PullRequest* request) {
    std::vector<uint64_t> ids;
    for (const auto& bag : bags) {
      ids.insert(ids.end(), bag.begin(), bag.end());
      const uint32_t length = static_cast<uint32_t>(bag.size());
      request->mutable_lengths()->append(reinterpret_cast<const char*>(&length), 4);
    }
    v1::PullGroup* const added = AddSegment(shard, epoch, ids, request);
    added->set_pooling(pooling);
    added->set_bag_counts(0, static_cast<uint32_t>(bags.size()));
    return added;
  }
  static void AddWeights(const std::vector<float>& weights, v1::PullGroup* segment,
                         v1::PullRequest* request) {
    segment->set_weighted(true);
    request->mutable_weights()->append(FloatBytes(weights));
  }
  static PooledBag Want(RowPooling pooling, uint32_t dim, const std::vector<uint64_t>& ids,
                        const std::vector<float>& weights = {}) {
    std::vector<std::vector<float>> rows;
    for (const uint64_t id : ids) {
      std::vector<float>& row = rows.emplace_back();
      for (uint32_t c = 0; c < dim; ++c) row.push_back(static_cast<float>(id * 1000 + c));
    }
    return PoolByHand(pooling, dim, rows, weights);
  }
  static std::string Args(const std::vector<uint32_t>& args) {
    return std::string(reinterpret_cast<const char*>(args.data()), 4 * args.size());
  }
  v1::PullReply Ask(v1::PullRequest request) {
    Greet(&request);
    grpc::ClientContext context;
    auto call = stub_->Pull(&context);
    v1::PullReply reply;
    EXPECT_TRUE(call->Write(request));
    EXPECT_TRUE(call->Read(&reply));
    call->WritesDone();
    EXPECT_TRUE(call->Finish().ok());
    grpc::ClientContext lookup;  // gives the same answer
    v1::PullReply looked_up;
    EXPECT_TRUE(stub_->Lookup(&lookup, request, &looked_up).ok());
    EXPECT_EQ(looked_up.rows(), reply.rows());
    EXPECT_EQ(looked_up.arg_max(), reply.arg_max());
    EXPECT_EQ(looked_up.flags(), reply.flags());
    return reply;
  }
};

TEST_F(PooledPullTest, SumsMaximaAndRowsInOneMessage) {
  v1::PullRequest request;
  request.mutable_header()->set_want_flags(true);
  AddBags(kWide, 3, v1::POOLING_SUM, {{5, 1}, {9}}, &request);
  AddSegment(kNarrow, 4, {2, 3}, &request);
  AddBags(kNarrow, 4, v1::POOLING_MAX, {{1, 7, 7, 2}}, &request)->set_want_arg_max(true);
  const std::vector<float> weights = {0.5f, -2.0f, 3.0f};
  AddWeights(weights, AddBags(kNarrow, 4, v1::POOLING_SUM, {{4, 6}, {8}}, &request), &request);
  AddBags(kWide, 3, v1::POOLING_MAX, {{1, 2}}, &request)->set_want_arg_max(true);
  const v1::PullReply reply = Ask(request);
  EXPECT_EQ(reply.header().segments(), 5u);
  EXPECT_EQ(reply.header().exceptions_size(), 0) << reply.header().DebugString();
  EXPECT_EQ(reply.rows(), FloatBytes(Want(RowPooling::kSum, 8, {5, 1}).row) + ExpectedRows({9}, 8) +
                              ExpectedRows({2, 3}, 3) + ExpectedRows({7}, 3) +
                              FloatBytes(Want(RowPooling::kSum, 3, {4, 6}, {0.5f, -2.0f}).row) +
                              FloatBytes(Want(RowPooling::kSum, 3, {8}, {3.0f}).row) +
                              ExpectedRows({2}, 8));
  EXPECT_EQ(reply.flags(), std::string("\1\1\1\0\1\1\1\1\0\0\0\0\1\0", 14));
  EXPECT_EQ(reply.arg_max(), Args({1, 1, 1}) + Args(std::vector<uint32_t>(8, 1)));
}

TEST_F(PooledPullTest, EveryMistakeIsToldOfItsSegmentAlone) {
  v1::PullRequest request;
  AddBags(kWide, 3, v1::POOLING_SUM, {{5, 1}, {9}}, &request);
  AddBags(kWide, 3, static_cast<v1::Pooling>(3), {{6}}, &request);
  AddBags(kWide, 3, v1::POOLING_NONE, {{6}}, &request);
  AddWeights({1, 1}, AddBags(kWide, 3, v1::POOLING_MAX, {{6, 7}}, &request), &request);
  AddBags(kWide, 3, v1::POOLING_SUM, {{6}}, &request)->set_want_arg_max(true);
  AddSegment(kWide, 3, {4}, &request);
  request.mutable_header()->mutable_groups(5)->set_pooling(v1::POOLING_SUM);       // no bags
  AddBags(kWide, 3, v1::POOLING_SUM, {{4}, {}, {}}, &request);                     // more than ids
  AddBags(kWide, 2, v1::POOLING_MAX, {{4, 5}}, &request)->set_want_arg_max(true);  // stale
  AddBags(kNowhere, 1, v1::POOLING_SUM, {{4, 5}}, &request);
  AddWeights({2, 3}, AddBags(kNarrow, 4, v1::POOLING_SUM, {{8, 9}}, &request), &request);
  AddBags(kNarrow, 4, v1::POOLING_MAX, {{8, 9}}, &request)->set_want_arg_max(true);
  const v1::PullReply reply = Ask(request);
  const std::vector<std::pair<v1::Code, std::string>> want = {
      {v1::OK, ""},
      {v1::INVALID_ARGUMENT, "unknown pooling 3"},
      {v1::INVALID_ARGUMENT, "1 bags with pooling none"},
      {v1::INVALID_ARGUMENT, "weights with pooling max"},
      {v1::INVALID_ARGUMENT, "arg_max with pooling sum"},
      {v1::INVALID_ARGUMENT, "0 bags of 1 ids"},
      {v1::INVALID_ARGUMENT, "3 bags of 1 ids"},
      {v1::WRONG_EPOCH, ""},
      {v1::UNKNOWN_SHARD, ""},
      {v1::OK, ""},
      {v1::OK, ""}};
  ASSERT_EQ(reply.header().segments(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const v1::SegmentReply segment = AnswerOf(reply.header(), static_cast<uint32_t>(i));
    EXPECT_EQ(segment.code(), want[i].first) << i << ": " << segment.detail();
    EXPECT_THAT(segment.detail(), HasSubstr(want[i].second)) << i;
    if (segment.code() != v1::INVALID_ARGUMENT) continue;
    EXPECT_THAT(segment.detail(),
                HasSubstr(absl::StrCat("segment ", i, " for ", kWide.ToString())));
  }
  EXPECT_EQ(reply.rows(), FloatBytes(Want(RowPooling::kSum, 8, {5, 1}).row) + ExpectedRows({9}, 8) +
                              FloatBytes(Want(RowPooling::kSum, 3, {8, 9}, {2, 3}).row) +
                              ExpectedRows({9}, 3));
  EXPECT_EQ(reply.arg_max(), Args({1, 1, 1}));
}

TEST_F(PooledPullTest, BulkFieldsThatDoNotFitHarmOnlyThoseThatNeedThem) {
  v1::PullRequest request;
  AddSegment(kWide, 3, {4}, &request);
  AddBags(kWide, 3, v1::POOLING_SUM, {{5, 1}, {9}}, &request);
  AddWeights({2, 3}, AddBags(kNarrow, 4, v1::POOLING_SUM, {{8, 9}}, &request), &request);
  for (const std::string& weights : {std::string(), std::string(7, '\1'), std::string(12, '\1')}) {
    v1::PullRequest damaged = request;
    damaged.set_weights(weights);
    const v1::PullReply reply = Ask(damaged);
    EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
    EXPECT_EQ(AnswerOf(reply.header(), 1).code(), v1::OK);
    EXPECT_EQ(AnswerOf(reply.header(), 2).code(), v1::INVALID_ARGUMENT);
    EXPECT_THAT(AnswerOf(reply.header(), 2).detail(),
                AllOf(HasSubstr(kNarrow.ToString()), HasSubstr("2 ids, weights of 4 bytes"),
                      HasSubstr(absl::StrCat("has ", weights.size(), " bytes"))));
    EXPECT_EQ(reply.rows(), ExpectedRows({4}, 8) +
                                FloatBytes(Want(RowPooling::kSum, 8, {5, 1}).row) +
                                ExpectedRows({9}, 8));
  }
  for (const std::string& lengths : {std::string(), std::string(11, '\1'), std::string(16, '\1')}) {
    v1::PullRequest damaged = request;
    damaged.set_lengths(lengths);
    const v1::PullReply reply = Ask(damaged);
    EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
    EXPECT_EQ(AnswerOf(reply.header(), 1).code(), v1::INVALID_ARGUMENT);
    EXPECT_EQ(AnswerOf(reply.header(), 2).code(), v1::INVALID_ARGUMENT);
    EXPECT_THAT(AnswerOf(reply.header(), 1).detail(), HasSubstr("3 bags, lengths of 4 bytes"));
    EXPECT_EQ(reply.rows(), ExpectedRows({4}, 8));
  }
}

TEST_F(PooledPullTest, PooledRowsTravelAsFloatsOnly) {
  v1::PullRequest request;
  AddBags(kWide, 3, v1::POOLING_SUM, {{5, 1}}, &request);
  AddSegment(kWide, 3, {4}, &request);
  request.mutable_header()->set_row_type(v1::ROW_INT8);
  v1::PullReply reply = Ask(request);
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::INVALID_ARGUMENT);
  EXPECT_THAT(AnswerOf(reply.header(), 0).detail(), HasSubstr("int8"));
  EXPECT_EQ(AnswerOf(reply.header(), 1).code(), v1::OK);
  request.mutable_header()->set_row_type(v1::ROW_BF16);
  reply = Ask(request);
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
  EXPECT_EQ(reply.rows().size(), 2 * 16u);
}

// Many ids in few bags: the answer is small, although the rows of the ids would not be.
TEST_F(PooledPullTest, TheAnswerIsMeasuredInBags) {
  v1::PullRequest request;
  Greet(&request);
  request.mutable_header()->mutable_hello()->set_message_bytes_max(4096);
  AddBags(kWide, 3, v1::POOLING_SUM, {std::vector<uint64_t>(1000, 1)}, &request);
  grpc::ClientContext context;
  v1::PullReply reply;
  ASSERT_TRUE(stub_->Lookup(&context, request, &reply).ok());
  EXPECT_EQ(AnswerOf(reply.header(), 0).code(), v1::OK);
  AddBags(kWide, 3, v1::POOLING_MAX, std::vector<std::vector<uint64_t>>(80, {1}), &request)
      ->set_want_arg_max(true);
  grpc::ClientContext again;
  ASSERT_TRUE(stub_->Lookup(&again, request, &reply).ok());
  EXPECT_EQ(reply.header().code(), v1::INVALID_ARGUMENT);
  EXPECT_THAT(reply.header().detail(), HasSubstr("the limit is 4096"));
}

}  // namespace pooled_pull_test
}  // namespace hotbed
