// A client of two copies, of which one is held back: no answer is older than one before without a
// mark, and none fails because of that.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "hotbed/serving.h"
#include "proto/serving.grpc.pb.h"

namespace hotbed {
namespace newest_copies_test {

const Clock& RealClock() { return *Clock::Real(); }

std::unique_ptr<grpc::Server> Listen(grpc::Service* service, int* port) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), port);
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

// The one row of its table is the time of its last change, in microseconds since the test began;
// it changes all the time.
class FakeCopy final : public v1::Serving::Service {
 public:
  FakeCopy(uint32_t life, int64_t lag_ms) : life_(life), lag_ns_(lag_ms * kMillisecondNs) {
    server_ = Listen(this, &port_);
  }
  ~FakeCopy() override { server_->Shutdown(); }

  grpc::Status Lookup(grpc::ServerContext*, const v1::ServingLookupRequest* request,
                      v1::ServingLookupReply* reply) override {
    ++calls_;
    if (away_.load()) return {grpc::StatusCode::UNAVAILABLE, "away"};
    const int64_t now_ns = RealClock().NowNs();
    const int64_t frozen_ns = frozen_ns_.load();
    const int64_t as_of_ns = (frozen_ns == 0 ? now_ns : frozen_ns) - lag_ns_;
    v1::ServingTableReply& said = *reply->add_tables();
    said.set_age_ms(static_cast<uint64_t>((now_ns - as_of_ns) / kMillisecondNs + 1));
    const uint32_t limit = request->tables(0).age_ms_max();
    if (limit != 0 && said.age_ms() > limit) {
      said.set_outcome(v1::ServingTableReply::BEHIND);
      return grpc::Status::OK;
    }
    said.set_dim(1);
    said.set_life(life_);
    if (frozen_ns != 0) {
      said.set_unchanged_ms(static_cast<uint64_t>((now_ns - frozen_ns) / kMillisecondNs));
    }
    const auto value = static_cast<float>((as_of_ns - begin_ns_) / 1000);
    reply->mutable_rows()->assign(reinterpret_cast<const char*>(&value), sizeof(value));
    reply->mutable_exists()->assign(1, 1);
    return grpc::Status::OK;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  uint64_t calls() const { return calls_.load(); }
  void SetAway(bool away) { away_.store(away); }
  // No change comes any more.
  void Freeze() { frozen_ns_.store(RealClock().NowNs()); }

 private:
  static inline const int64_t begin_ns_ = RealClock().NowNs();
  const uint32_t life_;
  const int64_t lag_ns_;
  std::atomic<bool> away_{false};
  std::atomic<int64_t> frozen_ns_{0};
  std::atomic<uint64_t> calls_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class FakeCoordinator final : public v1::ServingCoordinator::Service {
 public:
  explicit FakeCoordinator(const std::array<FakeCopy*, 2>& copies) {
    v1::ServedTable& table = *map_.add_tables();
    table.set_table(1);
    v1::TableSpec& spec = *map_.add_specs();
    spec.set_name("t");
    spec.set_dim(1);
    for (size_t i = 0; i < copies.size(); ++i) {
      v1::ServingServerInfo& server = *map_.add_servers();
      server.set_name(absl::StrCat("s", i));
      server.set_address(copies[i]->address());
      server.set_alive(true);
      v1::ReplicaReport& replica = *server.add_replicas();
      replica.set_table(1);
      replica.set_ready(true);
      table.add_servers(server.name());
    }
    server_ = Listen(this, &port_);
  }
  ~FakeCoordinator() override { server_->Shutdown(); }

  grpc::Status GetServing(grpc::ServerContext*, const v1::GetServingRequest*,
                          v1::ServingMap* reply) override {
    *reply = map_;
    return grpc::Status::OK;
  }
  std::string target() const { return absl::StrCat("hotbed://127.0.0.1:", port_); }

 private:
  v1::ServingMap map_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct Cluster {
  explicit Cluster(int64_t lag_a_ms, int64_t lag_b_ms, bool may_go_back = false)
      : a(1, lag_a_ms), b(2, lag_b_ms), coordinator({&a, &b}) {
    auto connected = ServingClient::Connect(coordinator.target(), {.may_go_back = may_go_back});
    EXPECT_TRUE(connected.ok()) << connected.status();
    client = *std::move(connected);
  }
  ServingRows Lookup(absl::Duration timeout = absl::Seconds(5)) {
    const std::vector<uint64_t> ids = {0};
    auto rows = client->Lookup({{"t", ids}}, {.timeout = timeout});
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? (*rows)[0] : ServingRows{.values = {0}};
  }
  FakeCopy a, b;
  FakeCoordinator coordinator;
  std::unique_ptr<ServingClient> client;
};

struct Seen {
  int back = 0, back_marked = 0, marked = 0, changes = 0;
};
Seen Alternate(Cluster* cluster) {
  Seen seen;
  float before = 0;
  std::string server;
  for (int i = 0; i < 30; ++i) {
    cluster->a.SetAway(i % 2 == 1);
    cluster->b.SetAway(i % 2 == 0);
    const ServingRows rows = cluster->Lookup();
    (rows.older ? seen.back_marked : seen.back) += rows.values[0] < before ? 1 : 0;
    seen.marked += rows.older ? 1 : 0;
    seen.changes += rows.server != server ? 1 : 0;
    before = rows.values[0];
    server = rows.server;
  }
  return seen;
}

TEST(NewestCopiesTest, AReaderThatAlternatesNeverGoesBackWithoutAMark) {
  Cluster cluster(/*lag_a_ms=*/0, /*lag_b_ms=*/40);
  const Seen seen = Alternate(&cluster);
  EXPECT_EQ(seen.back, 0);
  EXPECT_GE(seen.changes, 29);
  EXPECT_LT(seen.marked, 10) << "it does not wait for the copy that is held back";
}

TEST(NewestCopiesTest, WithoutTheCheckTheReaderGoesBack) {
  Cluster cluster(/*lag_a_ms=*/0, /*lag_b_ms=*/40, /*may_go_back=*/true);
  const Seen seen = Alternate(&cluster);
  EXPECT_GE(seen.back, 10);
  EXPECT_EQ(seen.marked, 0);
}

TEST(NewestCopiesTest, WhereNoCopyCanCatchUpTheAnswerIsMarkedOnce) {
  Cluster cluster(/*lag_a_ms=*/0, /*lag_b_ms=*/40);
  cluster.b.SetAway(true);
  EXPECT_FALSE(cluster.Lookup().older);
  cluster.b.Freeze();
  cluster.b.SetAway(false);
  RealClock().SleepNs(5 * kMillisecondNs);
  EXPECT_EQ(cluster.Lookup().server.empty(), false);
  cluster.a.SetAway(true);
  const int64_t begin_ns = RealClock().NowNs();
  EXPECT_TRUE(cluster.Lookup().older);
  EXPECT_LT(RealClock().NowNs() - begin_ns, 3 * kSecondNs);
  EXPECT_FALSE(cluster.Lookup().older);
}

TEST(NewestCopiesTest, ALookupWithLittleTimeIsAnsweredToo) {
  Cluster cluster(/*lag_a_ms=*/0, /*lag_b_ms=*/100'000);
  cluster.b.SetAway(true);
  EXPECT_FALSE(cluster.Lookup().older);
  cluster.b.SetAway(false);
  cluster.a.SetAway(true);
  EXPECT_TRUE(cluster.Lookup(absl::Milliseconds(200)).older);
}

TEST(NewestCopiesTest, ACopyThatIsBehindIsNotAskedFirstEachTime) {
  Cluster cluster(/*lag_a_ms=*/20, /*lag_b_ms=*/20);
  const bool a_is_first = cluster.Lookup().server == "s0";
  FakeCopy& first = a_is_first ? cluster.a : cluster.b;
  first.SetAway(true);
  EXPECT_EQ(cluster.Lookup().server, a_is_first ? "s1" : "s0");
  first.SetAway(false);
  uint64_t calls = 0, lookups = 0;
  const int64_t begin_ns = RealClock().NowNs();
  while (RealClock().NowNs() - begin_ns < 1'500 * kMillisecondNs) {
    if (RealClock().NowNs() - begin_ns < 1'000 * kMillisecondNs) {  // it is shunned
      calls = cluster.a.calls() + cluster.b.calls();
      lookups = 0;
    }
    cluster.Lookup();
    ++lookups;
  }
  calls = cluster.a.calls() + cluster.b.calls() - calls;
  EXPECT_LT(calls, lookups + lookups / 4 + 10) << lookups << " lookups";
}

}  // namespace newest_copies_test
}  // namespace hotbed
