// Ten million ids in one call: the client cuts them into messages that a server accepts, and every
// id gets its row. The transport is in this process, so that the client's work is measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/client_impl.h"
#include "client/net/message_limits.h"
#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/proto/segment_twin.h"

namespace hotbed {
namespace large_call_test {

constexpr uint64_t kRows = 1'000'000;
constexpr uint64_t kIds = 10'000'000;
constexpr uint32_t kShards = 8;
constexpr uint64_t kServerBytesMax = 64 << 10;

float RowOf(uint64_t id) { return static_cast<float>(id) + 0.5f; }

// A coordinator that knows one table of one column on two servers, which take kServerBytesMax.
class OneTable final : public ControlPlane {
 public:
  absl::StatusOr<MapUpdate> GetMap(uint64_t, absl::Duration) override {
    MapUpdate update;
    update.cluster_id = "c";
    update.plan_revision = 1;
    TableSpec spec;
    spec.id = 1;
    spec.name = "t";
    spec.rows = kRows;
    spec.dim = 1;
    update.tables.push_back(spec);
    for (uint32_t s = 0; s < kShards; ++s) {
      ShardRecord record;
      record.shard = {1, s};
      record.range = {kRows * s / kShards, kRows * (s + 1) / kShards, 0, 1};
      record.epoch = 1;
      record.primary.server = 1 + s % 2;
      update.shards.push_back(record);
    }
    update.servers = {{1, 1, "one", kServerBytesMax}, {2, 1, "two", kServerBytesMax}};
    return update;
  }
  absl::Status Watch(uint64_t, const std::function<void(const MapUpdate&)>&) override {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&stopped_));
    return absl::CancelledError("stopped");
  }
  void StopWatching() override {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  absl::StatusOr<MapUpdate> CreateTable(const TableSpec&, bool, absl::Duration) override {
    return absl::UnimplementedError("not here");
  }
  absl::StatusOr<MapUpdate> DropTable(const std::string&, absl::Duration) override {
    return absl::UnimplementedError("not here");
  }
  absl::StatusOr<SessionIdentity> OpenSession(const std::string&, absl::Duration) override {
    return SessionIdentity{1, 1};
  }

 private:
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

// Answers pulls on a thread of its own, in place of two servers. A row is its id and a half.
class InProcess final : public Transport {
 public:
  struct Seen {
    uint64_t messages = 0;
    uint64_t ids = 0;
    uint64_t bytes_max = 0;  // of a request or of an answer
  };

  explicit InProcess(Seen* seen) : seen_(seen), thread_([this] { Serve(); }) {}
  ~InProcess() override {
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
    }
    thread_.join();
  }
  void Send(const std::string&, Lane, OutgoingMessage message,
            std::shared_ptr<PendingRequest> request) override {
    absl::MutexLock lock(&mu_);
    queue_.emplace_back(std::move(message), std::move(request));
  }
  void SetSession(uint64_t, uint64_t) override {}
  void SetClusterId(const std::string&) override {}
  uint64_t MessageBytesMax() const override { return 0; }
  ClientStats Stats() const override { return {}; }

 private:
  using Item = std::pair<OutgoingMessage, std::shared_ptr<PendingRequest>>;

  void Serve() {
    const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return stopped_ || !queue_.empty();
    };
    for (;;) {
      std::vector<Item> items;
      {
        absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(&wanted));
        if (queue_.empty()) return;
        items.swap(queue_);
      }
      for (Item& item : items) Answer(item.first, item.second.get());
    }
  }

  void Answer(const OutgoingMessage& message, PendingRequest* request) {
    v1::PullHeader header;
    ASSERT_TRUE(header.ParseFromString(message.header));
    PullReplyView view;
    view.header.set_segments(static_cast<uint32_t>(AskedOf(header).size()));
    rows_.clear();
    for (const BytesRef& piece : message.bulk[0].pieces) {
      for (size_t at = 0; at < piece.size; at += 8) {
        uint64_t id;
        std::memcpy(&id, piece.data + at, 8);
        rows_.push_back(RowOf(id));
      }
    }
    ++seen_->messages;
    seen_->ids += rows_.size();
    seen_->bytes_max = std::max<uint64_t>(
        seen_->bytes_max, message.header.size() + 8 * rows_.size() + kMessageFrameBytes);
    const Fragment fragment(reinterpret_cast<const uint8_t*>(rows_.data()), 4 * rows_.size());
    view.rows = {0, 0, 4 * rows_.size(), true};
    const ServerReply reply{{&fragment, 1}, &view, 0, message.segments, 0, /*whole=*/true};
    request->Done(absl::OkStatus(), &reply);
  }

  Seen* const seen_;
  std::vector<float> rows_;
  absl::Mutex mu_;
  std::vector<Item> queue_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

TEST(LargeCallTest, TenMillionIdsAreCutAndAnsweredRight) {
  const TestSeed seed(17);
  Random random(seed.value());
  InProcess::Seen seen;
  ClientImpl client(ClientOptions(), std::make_unique<OneTable>(),
                    std::make_unique<InProcess>(&seen), Clock::Real(), 1);
  ASSERT_TRUE(client.Start().ok());
  const auto table = client.OpenTable("t");
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<uint64_t> ids(kIds);
  // Each id occurs ten times, close together: a test should not wait for memory.
  for (uint64_t i = 0; i < kIds; ++i) ids[i] = (i / 10 + random.Uniform(64)) % kRows;
  std::vector<float> rows(kIds);
  const PullFeature feature{*table, ids, rows.data()};
  const absl::Status pulled = client.Pull({&feature, 1}, {}).Wait();
  ASSERT_TRUE(pulled.ok()) << pulled;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kIds; ++i) wrong += rows[i] != RowOf(ids[i]);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(client.Stats().ids_asked, kIds);
  EXPECT_EQ(client.Stats().rows_pulled, seen.ids) << "each row travels once";
  EXPECT_LE(seen.ids, kRows);
  EXPECT_GT(seen.messages, 180);
  EXPECT_LE(seen.bytes_max, kServerBytesMax);
}

}  // namespace large_call_test
}  // namespace hotbed
