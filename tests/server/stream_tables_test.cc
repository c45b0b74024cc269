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

// Lets nobody use any table, and counts how often it is asked.
class Nobody final : public TableAccess {
 public:
  explicit Nobody(int* asked) : asked_(asked) {}
  absl::Status Check(absl::string_view table) const override {
    ++*asked_;
    return absl::PermissionDeniedError(absl::StrCat("\"web\" may not use table ", table));
  }
  absl::Status Refuse(absl::string_view what) const override { return Check(what); }

 private:
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
    host_.AddShard(kNarrow, 3, 4);
  }
  template <typename Request>
  static grpc::ByteBuffer BytesOf(const Request& request) {
    const grpc::Slice slice(request.SerializeAsString());
    return grpc::ByteBuffer(&slice, 1);
  }

  FakeShardHost host_;
  DataPlane plane_{DataPlaneLimits(), &host_, Clock::Real()};
  int asked_ = 0;
  StreamTables tables_{std::make_unique<Nobody>(&asked_)};
};

TEST_F(StreamTablesTest, APullIsRefusedSegmentBySegmentAndEachTableDecidedOnce) {
  for (int again = 0; again < 2; ++again) {
    v1::PullRequest request;
    Greet(&request);
    AddSegment(kWide, 3, {5, 1}, &request);
    AddSegment(kNowhere, 1, {5}, &request);
    AddSegment(kWide, 3, {9}, &request);
    AddSegment(kNarrow, 4, {2}, &request);
    PullMessage* const message = PullMessage::Take();
    ASSERT_TRUE(message->Parse(BytesOf(request), &plane_, 0, 0, tables_.limited()).ok());
    DoneSink sink(&plane_);
    message->Run(&sink);
    ASSERT_TRUE(sink.done);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(message->Encode(nullptr).Dump(&slices).ok());
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    v1::PullReply reply;
    ASSERT_TRUE(reply.ParseFromString(bytes));
    EXPECT_EQ(reply.rows(), "");
    ASSERT_EQ(reply.header().exceptions_size(), 4);
    for (const int refused : {0, 2, 3}) {
      EXPECT_EQ(reply.header().exceptions(refused).code(), v1::PERMISSION_DENIED);
      EXPECT_THAT(reply.header().exceptions(refused).detail(), HasSubstr("may not use table fake"));
    }
    EXPECT_EQ(reply.header().exceptions(1).code(), v1::UNKNOWN_SHARD);
    const uint64_t reserved = message->reserved();
    message->Recycle();
    if (reserved > 0) plane_.pull_budget.Release(reserved, nullptr);
  }
  EXPECT_EQ(asked_, 2) << "two tables, also of the second message";
}

TEST_F(StreamTablesTest, APushIsRefusedAndNothingReachesTheHost) {
  v1::PushRequest request;
  Greet(&request);
  AddSegment(kWide, 3, {5}, FloatBytes(std::vector<float>(8, 1.0f)), &request, 1 << 20);
  PushMessage* const message = PushMessage::Take();
  ASSERT_TRUE(message->Parse(BytesOf(request), &plane_, 0, tables_.limited()).ok());
  DoneSink sink(&plane_);
  message->Run(&sink);
  ASSERT_TRUE(sink.done);
  const v1::ReplyHeader& reply = message->Reply(nullptr);
  ASSERT_EQ(reply.exceptions_size(), 1);
  EXPECT_EQ(reply.exceptions(0).code(), v1::PERMISSION_DENIED);
  EXPECT_TRUE(host_.pushes().empty());
  const uint64_t reserved = message->reserved();
  message->Recycle();
  if (reserved > 0) plane_.push_budget.Release(reserved, nullptr);
}

TEST_F(StreamTablesTest, WithoutRulesOfTablesNothingIsAsked) {
  StreamTables all;
  EXPECT_EQ(all.limited(), nullptr);
  EXPECT_EQ(plane_.TablesOf(grpc::ServerContext(), "Pull").limited(), nullptr);
}

}  // namespace stream_tables_test
}  // namespace hotbed
