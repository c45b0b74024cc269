// Segments of tables that their caller may not use.
#include "server/streams/stream_tables.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/streams/pull_stream.h"
#include "server/streams/push_stream.h"
#include "tests/server/data_plane_fixture.h"

namespace hotbed {
namespace stream_tables_test {

using testing::HasSubstr;

// Lets one table be used, and counts how often it is asked.
class OneTable final : public TableAccess {
 public:
  OneTable(std::string table, int* asked) : table_(std::move(table)), asked_(asked) {}
  absl::Status Check(absl::string_view table) const override {
    ++*asked_;
    if (table == table_) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat("\"web\" may not use table ", table));
  }
  absl::Status Refuse(absl::string_view what) const override { return Check(what); }

 private:
  const std::string table_;
  int* const asked_;
};

class DoneSink final : public PullSink, public PushSink {
 public:
  explicit DoneSink(DataPlane* plane) : plane_(plane) {}
  void PullDone(PullMessage*) override { done = true; }
  void PushDone(PushMessage*) override { done = true; }
  bool abandoned() const override { return false; }
  ByteBudget* budget() override { return &plane_->pull_budget; }
  ByteBudget::Account* account() override { return nullptr; }
  void BeforeHost() override {}
  void HostHasTaken() override {}
  bool done = false;

 private:
  DataPlane* const plane_;
};

class StreamTablesTest : public testing::Test {
 protected:
  StreamTablesTest() {
    host_.AddShard(kWide, 8, 3);
    host_.AddShard(kNarrow, 3, 4, "narrow");
  }
  template <typename Request>
  static grpc::ByteBuffer BytesOf(const Request& request) {
    const grpc::Slice slice(request.SerializeAsString());
    return grpc::ByteBuffer(&slice, 1);
  }

  v1::PullReply Pull(const v1::PullRequest& request) {
    PullMessage* const message = PullMessage::Take();
    EXPECT_TRUE(message->Parse(BytesOf(request), &plane_, 0, 0, tables_.limited()).ok());
    DoneSink sink(&plane_);
    message->Run(&sink);
    EXPECT_TRUE(sink.done);
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(message->Encode(nullptr).Dump(&slices).ok());
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    v1::PullReply reply;
    EXPECT_TRUE(reply.ParseFromString(bytes));
    const uint64_t reserved = message->reserved();
    message->Recycle();
    if (reserved > 0) plane_.pull_budget.Release(reserved, nullptr);
    return reply;
  }

  v1::ReplyHeader Push(const v1::PushRequest& request) {
    PushMessage* const message = PushMessage::Take();
    EXPECT_TRUE(message->Parse(BytesOf(request), &plane_, 0, tables_.limited()).ok());
    DoneSink sink(&plane_);
    message->Run(&sink);
    EXPECT_TRUE(sink.done);
    v1::ReplyHeader reply = message->Reply(nullptr);
    const uint64_t reserved = message->reserved();
    message->Recycle();
    if (reserved > 0) plane_.push_budget.Release(reserved, nullptr);
    return reply;
  }

  FakeShardHost host_;
  DataPlane plane_{DataPlaneLimits(), &host_, Clock::Real()};
  int asked_ = 0;
  StreamTables tables_{std::make_unique<OneTable>("none", &asked_)};
};

TEST_F(StreamTablesTest, APullIsRefusedSegmentBySegmentAndEachTableDecidedOnce) {
  for (int again = 0; again < 2; ++again) {
    v1::PullRequest request;
    Greet(&request);
    AddSegment(kWide, 3, {5, 1}, &request);
    AddSegment(kNowhere, 1, {5}, &request);
    AddSegment(kWide, 3, {9}, &request);
    AddSegment(kNarrow, 4, {2}, &request);
    const v1::PullReply reply = Pull(request);
    EXPECT_EQ(reply.rows(), "");
    ASSERT_EQ(reply.header().exceptions_size(), 4);
    for (const int refused : {0, 2, 3}) {
      EXPECT_EQ(reply.header().exceptions(refused).code(), v1::PERMISSION_DENIED);
      EXPECT_THAT(reply.header().exceptions(refused).detail(), HasSubstr("may not use table"));
    }
    EXPECT_EQ(reply.header().exceptions(1).code(), v1::UNKNOWN_SHARD);
  }
  EXPECT_EQ(asked_, 2) << "two tables, also of the second message";
}

TEST_F(StreamTablesTest, APushIsRefusedAndNothingReachesTheHost) {
  v1::PushRequest request;
  Greet(&request);
  AddSegment(kWide, 3, {5}, FloatBytes(std::vector<float>(8, 1.0f)), &request, 1 << 20);
  const v1::ReplyHeader reply = Push(request);
  ASSERT_EQ(reply.exceptions_size(), 1);
  EXPECT_EQ(reply.exceptions(0).code(), v1::PERMISSION_DENIED);
  EXPECT_TRUE(host_.pushes().empty());
}

TEST_F(StreamTablesTest, TheTablesOfAMessageAreDecidedEachForItself) {
  tables_ = StreamTables(std::make_unique<OneTable>("narrow", &asked_));
  v1::PullRequest pull;
  Greet(&pull);
  AddSegment(kWide, 3, {5}, &pull);
  AddSegment(kNarrow, 4, {2, 7}, &pull);
  AddSegment(kWide, 3, {6}, &pull);
  const v1::PullReply pulled = Pull(pull);
  EXPECT_EQ(pulled.rows(), ExpectedRows({2, 7}, 3));
  ASSERT_EQ(pulled.header().exceptions_size(), 2);
  for (const v1::SegmentReply& refused : pulled.header().exceptions()) {
    EXPECT_NE(refused.segment(), 1u);
    EXPECT_EQ(refused.code(), v1::PERMISSION_DENIED);
    EXPECT_THAT(refused.detail(), HasSubstr("may not use table fake"));
  }

  v1::PushRequest push;
  Greet(&push);
  AddSegment(kWide, 3, {5}, FloatBytes(std::vector<float>(8, 1.0f)), &push, 1 << 20);
  AddSegment(kNarrow, 4, {2}, FloatBytes({1, 2, 3}), &push, 1 << 20);
  const v1::ReplyHeader pushed = Push(push);
  ASSERT_EQ(pushed.exceptions_size(), 1);
  EXPECT_EQ(pushed.exceptions(0).segment(), 0u);
  EXPECT_EQ(pushed.exceptions(0).code(), v1::PERMISSION_DENIED);
  const std::vector<FakeShardHost::PushSeen> seen = host_.pushes();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].shard, kNarrow);
  EXPECT_EQ(seen[0].ids, (std::vector<uint64_t>{2}));
  EXPECT_EQ(asked_, 2);
}

TEST_F(StreamTablesTest, WithoutRulesOfTablesNothingIsAsked) {
  StreamTables all;
  EXPECT_EQ(all.limited(), nullptr);
  EXPECT_EQ(plane_.TablesOf(grpc::ServerContext(), "Pull").limited(), nullptr);
}

}  // namespace stream_tables_test
}  // namespace hotbed
