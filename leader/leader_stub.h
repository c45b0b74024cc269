// The way from a client, a server or a command to the coordinator that leads.
//
// Several coordinators may be named. One leads; each other one answers every call with UNAVAILABLE
// and, in the trailing metadata, the leader's address. A call goes to the leader as far as it is
// known, else to a coordinator that is connected. Thread-safe.
//
// Included by files that hold gRPC types only.
#ifndef HOTBED_LEADER_LEADER_STUB_H_
#define HOTBED_LEADER_LEADER_STUB_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/control.grpc.pb.h"
#include "security/identity.h"

namespace hotbed {

// In the trailing metadata of a coordinator that stands by: the leader's HOST:PORT, or empty while
// nobody leads.
inline constexpr char kStandsBy[] = "hotbed-stands-by";

class LeaderStub {
 public:
  struct Place {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Coordinator::Stub> stub;
  };

  // `addresses` is what CheckHostPorts takes. Connects at the first call.
  LeaderStub(absl::string_view addresses, const ClientIdentity& identity,
             grpc::ChannelArguments args);

  // Which calls are made again: those that ended at a coordinator that stands by, since nothing was
  // done then; or, where they may be carried out twice, all that ended with UNAVAILABLE, as when a
  // coordinator is killed meanwhile.
  enum class Again { kStoodBy, kUnavailable };
  // Makes a call until its end is no reason to make it again, or `timeout` is over.
  // `patient`: waits for a connection; otherwise the call fails once no coordinator can be
  // connected to. `attempt` makes the call; the context has the deadline.
  using Attempt = absl::FunctionRef<grpc::Status(v1::Coordinator::Stub*, grpc::ClientContext*)>;
  grpc::Status Call(absl::Duration timeout, bool patient, Attempt attempt,
                    Again again = Again::kStoodBy);

  // For streams: where to open one, at once or within `timeout`; and what its end has told. Learn
  // is true after the answer of a coordinator that stands by. `context` is that of the call, which
  // has ended.
  std::shared_ptr<const Place> Find(absl::Duration timeout, bool patient);
  bool Learn(const Place& place, const grpc::Status& status, const grpc::ClientContext& context);

  // The address that is called next: after a call that succeeded, where it did.
  std::string current() const ABSL_LOCKS_EXCLUDED(mu_);
  // Ends waits; later calls do not wait for a connection.
  void Stop();

 private:
  using Places = std::vector<std::shared_ptr<const Place>>;

  std::shared_ptr<const Place> MakePlace(const std::string& address) const;
  Places CurrentFirst() const ABSL_LOCKS_EXCLUDED(mu_);
  void Choose(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False after Stop.
  bool Pause(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mu_);

  const ClientIdentity identity_;
  const grpc::ChannelArguments args_;
  size_t named_ = 0;  // of the places; one that was told of may follow
  mutable absl::Mutex mu_;
  Places places_ ABSL_GUARDED_BY(mu_);
  size_t current_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_LEADER_LEADER_STUB_H_
