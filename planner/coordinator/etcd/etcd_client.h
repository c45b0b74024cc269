// Calls to the members of an etcd cluster.
//
// One member is called until it fails, then the next. A user's token is fetched when the first call
// needs it, and again once etcd does not know it any more.
//
// Thread-safe; every call blocks.
#ifndef HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_CLIENT_H_
#define HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "planner/coordinator/etcd/etcd.grpc.pb.h"
#include "planner/coordinator/etcd/etcd_address.h"

namespace hotbed {

class EtcdClient {
 public:
  explicit EtcdClient(EtcdOptions options);

  // Reads go to one member after another until one answers. They see all that was committed before.
  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request);
  // Goes to a member that is connected. After an error other than InvalidArgument the outcome is
  // unknown.
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request);

  // Drops what keys were before `revision`. OutOfRange: it was done before.
  absl::Status Compact(int64_t revision);

  // A lease that ends `ttl_s` after it was last kept; its number.
  absl::StatusOr<int64_t> GrantLease(int64_t ttl_s);
  // The seconds that it has now; 0: there is no such lease.
  absl::StatusOr<int64_t> KeepLease(int64_t lease);
  absl::Status RevokeLease(int64_t lease);

  const EtcdAddress& address() const { return options_.address; }

 private:
  struct Member {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<etcdserverpb::KV::Stub> kv;
    std::unique_ptr<etcdserverpb::Lease::Stub> lease;
    std::unique_ptr<etcdserverpb::Auth::Stub> auth;
  };
  using Method = std::function<grpc::Status(Member& member, grpc::ClientContext* context)>;

  // A member that is connected, or the current one if none is within the timeout.
  size_t Choose() ABSL_LOCKS_EXCLUDED(mu_);
  // Further calls go to another member than `failed`.
  void Leave(size_t failed) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls one member, with a token if there is a user; logs in again if etcd does not know the
  // token, which it says before it does anything.
  grpc::Status CallOne(Member& member, const Method& method) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Call(bool repeat, const Method& method) ABSL_LOCKS_EXCLUDED(mu_);
  grpc::Status LogIn(Member& member, std::string* token) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Explain(const Member& member, const grpc::Status& status) const;

  const EtcdOptions options_;
  std::vector<Member> members_;
  absl::Mutex mu_;
  size_t current_ ABSL_GUARDED_BY(mu_) = 0;
  std::string token_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_CLIENT_H_
