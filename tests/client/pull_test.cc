// Pulls and lookups against the fake cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"

namespace hotbed {
namespace pull_test {

class PullTest : public testing::Test {
 protected:
  void Connect(ClientOptions options = {}) {
    options.deadline = absl::Seconds(20);
    options.session_name = "pull-test";
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  const Table* Open(const std::string& name) {
    auto table = client_->OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *table : nullptr;
  }
  // Row of id: {-id % 64, -id % 64 - 0.5, ...}, halves that every wire type carries exactly.
  static float Expected(uint64_t id, uint32_t column) {
    return -static_cast<float>(id % 32) - 0.5f * static_cast<float>(column % 8);
  }
  void Fill(const Table* table, uint64_t step, const std::vector<uint64_t>& ids) {
    std::vector<float> gradients;
    for (uint64_t id : ids) {
      for (uint32_t c = 0; c < table->dim(); ++c) gradients.push_back(-Expected(id, c));
    }
    const PushFeature feature{table, ids, gradients.data()};
    const PushResult result = client_->Push(step, {&feature, 1}).Wait();
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  static void ExpectRows(const std::vector<uint64_t>& ids, const std::vector<float>& rows,
                         uint32_t dim) {
    ASSERT_EQ(rows.size(), ids.size() * dim);
    for (size_t i = 0; i < ids.size(); ++i) {
      for (uint32_t c = 0; c < dim; ++c) {
        ASSERT_EQ(rows[i * dim + c], Expected(ids[i], c)) << "id " << ids[i] << " column " << c;
      }
    }
  }

  FakeCluster cluster_{2};
  std::unique_ptr<Client> client_;
};

TEST_F(PullTest, DuplicatesAcrossFeaturesAndTablesComeInOneMessageAServer) {
  cluster_.AddTable("user", 1000, 5, 4);
  cluster_.AddTable("item", 500, 16, 3);
  Connect();
  const Table* user = Open("user");
  const Table* item = Open("item");
  Fill(user, 1, {1, 2, 3, 700, 999});
  Fill(item, 1, {0, 7, 499});
  const std::vector<uint64_t> a = {3, 999, 3, 1}, b = {700, 3}, c = {499, 0, 499, 7}, none;
  std::vector<float> ra(a.size() * 5), rb(b.size() * 5), rc(c.size() * 16);
  const std::vector<PullFeature> features = {
      {user, a, ra.data()}, {user, b, rb.data()}, {item, c, rc.data()}, {item, none, nullptr}};
  const uint64_t before = cluster_.pull_messages();
  const absl::Status status = client_->Pull(features).Wait();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(cluster_.pull_messages() - before, 2);
  ExpectRows(a, ra, 5);
  ExpectRows(b, rb, 5);
  ExpectRows(c, rc, 16);
  EXPECT_EQ(client_->Stats().ids_asked, 10);
  EXPECT_EQ(client_->Stats().rows_pulled, 7);
}

TEST_F(PullTest, EveryWireTypeArrivesAsFp32OrAsItTravels) {
  cluster_.AddTable("t", 100, 9, 2);
  Connect();
  const Table* t = Open("t");
  const std::vector<uint64_t> ids = {5, 99, 5, 40};
  Fill(t, 1, {5, 40, 99});
  for (RowType type : {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8}) {
    std::vector<float> rows(ids.size() * 9);
    std::vector<uint8_t> raw(ids.size() * RowWireBytes(type, 9));
    PullFeature features[] = {{t, ids, rows.data()}, {t, ids, raw.data(), type}};
    PullOptions options;
    options.wire_type = &type;
    const absl::Status status = client_->Pull(features, options).Wait();
    ASSERT_TRUE(status.ok()) << status;
    ExpectRows(ids, rows, 9);
    const uint32_t bytes = RowWireBytes(type, 9);
    EXPECT_EQ(0, memcmp(raw.data(), raw.data() + 2 * bytes, bytes));
    EXPECT_NE(0, memcmp(raw.data(), raw.data() + bytes, bytes));
  }
}

TEST_F(PullTest, FlagsTellWhichRowsExist) {
  cluster_.AddTable("t", 100, 4, 2);
  Connect();
  const Table* t = Open("t");
  Fill(t, 1, {10, 90});
  const std::vector<uint64_t> ids = {10, 11, 90, 10};
  std::vector<float> rows(16);
  std::vector<uint8_t> exists(4, 7);
  const PullFeature feature{t, ids, rows.data(), RowType::kFp32, exists.data()};
  ASSERT_TRUE(client_->Pull({&feature, 1}).Wait().ok());
  EXPECT_EQ(exists, (std::vector<uint8_t>{1, 0, 1, 1}));
}

TEST_F(PullTest, LargeCallsAreCutByBytes) {
  cluster_.AddTable("t", 40000, 64, 4);
  ClientOptions options;
  options.message_bytes_max = 64 << 10;
  Connect(options);
  const Table* t = Open("t");
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 30000; ++i) ids.push_back(i * 7 % 40000);
  std::vector<float> rows(ids.size() * 64);
  Fill(t, 1, ids);
  const PullFeature feature{t, ids, rows.data()};
  const absl::Status status = client_->Pull({&feature, 1}).Wait();
  ASSERT_TRUE(status.ok()) << status;
  ExpectRows(ids, rows, 64);
  EXPECT_LE(cluster_.largest_message(), (64 << 10) + 256);
  EXPECT_GT(cluster_.pull_messages(), 100);
}

TEST_F(PullTest, CutsToWhatTheServersRegistered) {
  cluster_.AddTable("t", 40000, 64, 4);
  cluster_.set_message_bytes_max(64 << 10, /*registered=*/true);
  Connect();
  const Table* t = Open("t");
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 5000; ++i) ids.push_back(i * 7 % 40000);
  std::vector<float> rows(ids.size() * 64);
  Fill(t, 1, ids);
  const PullFeature feature{t, ids, rows.data()};
  for (const absl::Status& status :
       {client_->Pull({&feature, 1}).Wait(), client_->Lookup({&feature, 1}).Wait()}) {
    ASSERT_TRUE(status.ok()) << status;
    ExpectRows(ids, rows, 64);
  }
  EXPECT_EQ(cluster_.refused_messages(), 0);
  EXPECT_LE(cluster_.largest_message(), 64 << 10);
}

TEST_F(PullTest, AnOversizeRefusalEndsTheCallAndTheHellosLimitCutsTheNext) {
  cluster_.AddTable("t", 40000, 64, 4);
  cluster_.set_message_bytes_max(64 << 10, /*registered=*/false);
  Connect();
  const Table* t = Open("t");
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 5000; ++i) ids.push_back(i * 7 % 40000);
  std::vector<float> rows(ids.size() * 64);
  const PullFeature feature{t, ids, rows.data()};
  const absl::Status refused = client_->Pull({&feature, 1}).Wait();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("65536"));
  const absl::Status status = client_->Pull({&feature, 1}).Wait();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rows, std::vector<float>(ids.size() * 64));
}

TEST_F(PullTest, PullsBeyondTheLimitWaitAndEndAtTheirDeadline) {
  cluster_.AddTable("t", 100, 4, 1);
  ClientOptions options;
  options.pulls_in_flight_max = 2;
  options.pull_bytes_in_flight_max = 100;  // a call of ten rows is larger, and is sent alone
  Connect(options);
  const Table* t = Open("t");
  absl::Notification go;
  cluster_.set_delay([&] { go.WaitForNotification(); });
  const std::vector<uint64_t> one = {3}, ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> rows(10 * 4, 77.0f), more(10 * 4);
  const PullFeature large{t, ten, more.data()};
  const PullFeature small{t, one, rows.data()};
  const auto first = client_->Pull({&large, 1});
  PullOptions soon;
  soon.deadline = absl::Milliseconds(20);
  for (int i = 0; i < 2; ++i) {
    const auto refused =
        i == 0 ? client_->Pull({&small, 1}, soon) : client_->Lookup({&small, 1}, soon);
    EXPECT_TRUE(refused.ready());
    EXPECT_EQ(refused.Wait().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(refused.Wait().message()),
                testing::AllOf(testing::HasSubstr("not sent: 1 pulls"),
                               testing::HasSubstr("limits: 2 pulls, 100 bytes")));
  }
  EXPECT_LE(cluster_.pull_messages(), 1);
  std::thread waits([&] { EXPECT_TRUE(client_->Pull({&small, 1}).Wait().ok()); });
  go.Notify();
  EXPECT_TRUE(first.Wait().ok());
  waits.join();
  EXPECT_EQ(cluster_.pull_messages(), 2);
}

TEST_F(PullTest, FollowsAMovedShardByTheRecordInTheRefusal) {
  const uint32_t id = cluster_.AddTable("t", 100, 4, 2);
  Connect();
  const Table* t = Open("t");
  Fill(t, 1, {3, 60});
  cluster_.Move({id, 0}, 1);
  const std::vector<uint64_t> ids = {3, 60};
  std::vector<float> rows(8);
  const PullFeature feature{t, ids, rows.data()};
  ASSERT_TRUE(client_->Pull({&feature, 1}).Wait().ok());
  ExpectRows(ids, rows, 4);
  EXPECT_EQ(client_->Stats().wrong_epoch, 1);
}

TEST_F(PullTest, ComesBackWhenTheServerDoes) {
  cluster_.AddTable("t", 100, 4, 2);
  Connect();
  const Table* t = Open("t");
  Fill(t, 1, {3, 60});
  cluster_.StopServer(0);
  const std::vector<uint64_t> ids = {3, 60};
  std::vector<float> rows(8);
  const PullFeature feature{t, ids, rows.data()};
  auto pulled = client_->Pull({&feature, 1});
  EXPECT_FALSE(pulled.WaitFor(absl::Milliseconds(50)));
  cluster_.StartServer(0);
  ASSERT_TRUE(pulled.Wait().ok()) << pulled.Wait();
  ExpectRows(ids, rows, 4);
}

TEST_F(PullTest, RetriesOverloadAndEndsOnAFinalCode) {
  cluster_.AddTable("t", 100, 4, 1);
  Connect();
  const Table* t = Open("t");
  std::atomic<int> refusals{3};
  cluster_.set_pull_script([&](int, const PullAsk&) -> std::optional<v1::SegmentReply> {
    if (refusals-- <= 0) return std::nullopt;
    v1::SegmentReply reply;
    reply.set_code(v1::RESOURCE_EXHAUSTED);
    reply.set_retry_after_ms(2);
    return reply;
  });
  const std::vector<uint64_t> ids = {3};
  std::vector<float> rows(4);
  const PullFeature feature{t, ids, rows.data()};
  EXPECT_TRUE(client_->Pull({&feature, 1}).Wait().ok());
  EXPECT_EQ(client_->Stats().retries, 3);
  cluster_.set_pull_script([](int, const PullAsk&) {
    v1::SegmentReply reply;
    reply.set_code(v1::CORRUPT);
    reply.set_detail("block 7");
    return std::optional(reply);
  });
  const absl::Status status = client_->Pull({&feature, 1}).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("table t shard 0"));
}

TEST_F(PullTest, TheDeadlineEndsASlowPullAndLateRowsDoNotTouchTheBuffer) {
  cluster_.AddTable("t", 100, 4, 1);
  Connect();
  const Table* t = Open("t");
  Fill(t, 1, {3});
  cluster_.set_delay([] { absl::SleepFor(absl::Milliseconds(80)); });
  const std::vector<uint64_t> ids = {3};
  std::vector<float> rows(4, 77.0f);
  const PullFeature feature{t, ids, rows.data()};
  PullOptions options;
  options.deadline = absl::Milliseconds(20);
  EXPECT_EQ(client_->Pull({&feature, 1}, options).Wait().code(),
            absl::StatusCode::kDeadlineExceeded);
  absl::SleepFor(absl::Milliseconds(120));
  EXPECT_EQ(rows, std::vector<float>(4, 77.0f));
}

TEST_F(PullTest, BadCallsAreRefusedBeforeAnythingIsSent) {
  cluster_.AddTable("t", 100, 4, 2);
  Connect();
  const Table* t = Open("t");
  std::vector<float> rows(8);
  EXPECT_EQ(client_->Pull({}).Wait().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<uint64_t> outside = {3, 100};
  const PullFeature bad{t, outside, rows.data()};
  const absl::Status status = client_->Pull({&bad, 1}).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("table t"), testing::HasSubstr("id 100"),
                             testing::HasSubstr("0..99")));
  const std::vector<uint64_t> ids = {1};
  const PullFeature no_table{nullptr, ids, rows.data()};
  EXPECT_EQ(client_->Pull({&no_table, 1}).Wait().code(), absl::StatusCode::kInvalidArgument);
  const PullFeature no_buffer{t, ids, nullptr};
  EXPECT_EQ(client_->Pull({&no_buffer, 1}).Wait().code(), absl::StatusCode::kInvalidArgument);
  const PullFeature empty{t, {}, nullptr};
  EXPECT_TRUE(client_->Pull({&empty, 1}).Wait().ok());
  EXPECT_EQ(cluster_.pull_messages(), 0);
  EXPECT_EQ(client_->OpenTable("nobody").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PullTest, ADroppedTableIsNamed) {
  cluster_.AddTable("t", 100, 4, 2);
  Connect();
  const Table* t = Open("t");
  ASSERT_TRUE(client_->DropTable("t").ok());
  const std::vector<uint64_t> ids = {1};
  std::vector<float> rows(4);
  const PullFeature feature{t, ids, rows.data()};
  const absl::Status status = client_->Pull({&feature, 1}).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

TEST_F(PullTest, ATableThatAnotherClientDropsEndsThePullInTheMiddle) {
  cluster_.AddTable("t", 100, 4, 2);
  Connect();
  const Table* t = Open("t");
  auto other = Client::Connect(cluster_.target());
  ASSERT_TRUE((*other)->DropTable("t").ok());
  const std::vector<uint64_t> ids = {1};
  std::vector<float> rows(4);
  const PullFeature feature{t, ids, rows.data()};
  const absl::Status status = client_->Pull({&feature, 1}).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

TEST_F(PullTest, ALookupAnswersTheSameOnStreamsOfItsOwn) {
  cluster_.AddTable("t", 100, 4, 2);
  Connect();
  const Table* t = Open("t");
  Fill(t, 1, {3, 60});
  const std::vector<uint64_t> ids = {60, 3, 60};
  std::vector<float> rows(12);
  const PullFeature feature{t, ids, rows.data()};
  ASSERT_TRUE(client_->Lookup({&feature, 1}).Wait().ok());
  ExpectRows(ids, rows, 4);
  EXPECT_EQ(cluster_.lookup_messages(), 2);
}

TEST_F(PullTest, ManyPullsInFlightFromSeveralThreads) {
  cluster_.AddTable("t", 5000, 8, 8);
  ClientOptions options;
  options.threads = 2;
  Connect(options);
  const Table* t = Open("t");
  std::vector<uint64_t> all(5000);
  for (uint64_t i = 0; i < all.size(); ++i) all[i] = i;
  Fill(t, 1, all);
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n) {
    threads.emplace_back([&, n] {
      std::vector<uint64_t> ids;
      for (uint64_t i = 0; i < 200; ++i)
        ids.push_back((i * 31 + static_cast<uint64_t>(n) * 977) % 5000);
      std::vector<std::vector<float>> rows(16, std::vector<float>(ids.size() * 8));
      std::vector<Future<absl::Status>> futures;
      for (auto& buffer : rows) {
        const PullFeature feature{t, ids, buffer.data()};
        futures.push_back(client_->Pull({&feature, 1}));
      }
      for (size_t i = 0; i < futures.size(); ++i) {
        ASSERT_TRUE(futures[i].Wait().ok());
        ExpectRows(ids, rows[i], 8);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PullTest, ClosingTheClientEndsItsPulls) {
  cluster_.AddTable("t", 100, 4, 1);
  Connect();
  const Table* t = Open("t");
  cluster_.set_delay([] { absl::SleepFor(absl::Milliseconds(50)); });
  const std::vector<uint64_t> ids = {3};
  std::vector<float> rows(4);
  const PullFeature feature{t, ids, rows.data()};
  const auto pulled = client_->Pull({&feature, 1});
  client_.reset();
  EXPECT_EQ(pulled.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(ConnectTest, BadTargetsAndOptionsAreNamed) {
  for (const char* target :
       {"127.0.0.1:7400", "hotbed://here", "hotbed://:1", "hotbed://127.0.0.1:65537"}) {
    EXPECT_EQ(Client::Connect(target).status().code(), absl::StatusCode::kInvalidArgument);
  }
  ClientOptions options;
  options.push_type = RowType::kInt8;
  EXPECT_EQ(Client::Connect("hotbed://127.0.0.1:1", options).status().code(),
            absl::StatusCode::kInvalidArgument);
  ClientOptions quick;
  quick.deadline = absl::Milliseconds(30);
  EXPECT_EQ(Client::Connect("hotbed://127.0.0.1:1", quick).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace pull_test
}  // namespace hotbed
