#include "client/net/grpc_control_plane.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/control.grpc.pb.h"
#include "security/identity.h"

namespace hotbed::grpc_control_plane_test {
namespace {

// A coordinator that breaks its first calls off, as one does that is killed during them.
class BrokenOff final : public v1::Coordinator::Service {
 public:
  explicit BrokenOff(int calls) : left_(calls) {}

  grpc::Status GetClusterMap(grpc::ServerContext*, const v1::GetClusterMapRequest*,
                             v1::ClusterMap* map) override {
    map->set_plan_revision(7);
    return Answer();
  }
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest*,
                           v1::OpenSessionReply* reply) override {
    reply->set_session(3);
    reply->set_incarnation(2);
    return Answer();
  }
  grpc::Status DropTable(grpc::ServerContext*, const v1::DropTableRequest*,
                         v1::DropTableReply*) override {
    return Answer();
  }
  int calls() const { return calls_; }

 private:
  grpc::Status Answer() {
    ++calls_;
    if (left_-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Connection reset by peer");
    return grpc::Status::OK;
  }

  std::atomic<int> left_;
  std::atomic<int> calls_{0};
};

class GrpcControlPlaneTest : public ::testing::Test {
 protected:
  void Start(int broken) {
    service_ = std::make_unique<BrokenOff>(broken);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    plane_ = NewGrpcControlPlane(absl::StrCat("127.0.0.1:", port), ClientIdentity());
  }

  std::unique_ptr<BrokenOff> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ControlPlane> plane_;
};

TEST_F(GrpcControlPlaneTest, ASessionIsOpenedThoughTheCoordinatorBreaksOff) {
  Start(/*broken=*/2);
  const auto session = plane_->OpenSession("trainer", absl::Seconds(20));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->session, 3u);
  EXPECT_EQ(service_->calls(), 3);
}

TEST_F(GrpcControlPlaneTest, TheMapIsReadThoughTheCoordinatorBreaksOff) {
  Start(/*broken=*/1);
  const auto map = plane_->GetMap(0, absl::Seconds(20));
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(service_->calls(), 2);
}

TEST_F(GrpcControlPlaneTest, ItGivesUpWhenTheTimeIsOver) {
  Start(/*broken=*/1 << 20);
  const auto session = plane_->OpenSession("trainer", absl::Milliseconds(250));
  EXPECT_EQ(session.status().code(), absl::StatusCode::kUnavailable) << session.status();
  EXPECT_GE(service_->calls(), 1);
}

// Dropped once, a table cannot be dropped again: the caller is told that the end is not known.
TEST_F(GrpcControlPlaneTest, ADropIsNotRepeated) {
  Start(/*broken=*/1);
  EXPECT_EQ(plane_->DropTable("t", absl::Seconds(20)).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(service_->calls(), 1);
}

}  // namespace
}  // namespace hotbed::grpc_control_plane_test
