// A coordinator and shard servers in this process, over the generated synchronous stubs and a
// std::map. It is a second implementation of the wire, and tests script failures with it. Rows
// start at zero; the update is row -= lr * gradient with a learning rate of 1. Thread-safe.
#ifndef HOTBED_TESTS_CLIENT_FAKE_CLUSTER_H_
#define HOTBED_TESTS_CLIENT_FAKE_CLUSTER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "proto/control.grpc.pb.h"
#include "proto/data.grpc.pb.h"
#include "tests/proto/segment_twin.h"

namespace hotbed {

// The state of one shard, which moves between servers as a whole.
struct FakeShard {
  v1::ShardRecord record;
  std::map<uint64_t, std::vector<float>> rows;
  struct Session {
    uint64_t incarnation = 0;
    uint64_t last_seq = 0;
  };
  std::map<uint64_t, Session> sessions;
  uint64_t lsn = 0;
  uint64_t applied = 0;  // pushes, each once
  uint64_t duplicates = 0;
  std::vector<uint64_t> applied_ids;  // in order, over all pushes
};

class FakeCluster {
 public:
  explicit FakeCluster(int servers);
  ~FakeCluster();

  // The shards have equal ranges and are placed on the servers in turn.
  uint32_t AddTable(const std::string& name, uint64_t rows, uint32_t dim, uint32_t shards,
                    v1::NanPolicy nan_policy = v1::NAN_REJECT);
  // The same for any spec (its id is ignored), with `shards` ranges in each of its column slices.
  uint32_t AddTable(v1::TableSpec spec, uint32_t shards);
  std::string target() const { return "hotbed://" + coordinator_address_; }

  // Moves a shard: a new epoch with another primary. The coordinator tells its watchers nothing
  // unless `announce`.
  void Move(ShardId shard, int to_server, bool announce = false);
  // Servers with a replica in addition to the primary: they answer pulls with the primary's rows.
  void SetReplicas(ShardId shard, const std::vector<int>& backups,
                   const std::vector<int>& read_replicas);
  // Sets whether the coordinator reports a server as live, and announces it.
  void SetLive(int server, bool live);
  // A hanging server answers nothing, and no stream breaks.
  void SetHanging(int server, bool hanging);
  // Closes the server's port (streams break) / opens it again on the same port.
  void StopServer(int server);
  void StartServer(int server);

  // --- Scripts, which run with the cluster's mutex held for each segment before it is served. A
  // returned reply is sent instead of serving the segment.
  using PushScript = std::function<std::optional<v1::SegmentReply>(int server, const PushAsk&)>;
  using PullScript = std::function<std::optional<v1::SegmentReply>(int server, const PullAsk&)>;
  void set_push_script(PushScript script);
  void set_pull_script(PullScript script);
  // After a push message was applied: true ends the stream without an answer.
  void set_break_after_push(std::function<bool()> script);
  // Before a message is served, without the mutex.
  void set_delay(std::function<void()> delay);
  // Before a session is opened, without the mutex.
  void set_open_delay(std::function<void()> delay);
  // The other trainers of every group have ended the steps up to this one. A step that all have
  // ended is committed, without tables.
  void set_ended_by_others(uint64_t step);
  // Ends every stream at its first message with this status, unless it is OK.
  void set_greeting(std::function<grpc::Status()> script);
  // The limit in the servers' hellos; larger messages and answers are refused as a whole.
  // `registered`: the coordinator knows the limit, too.
  void set_message_bytes_max(uint64_t bytes, bool registered);

  // A copy of the shard's state.
  FakeShard shard(ShardId id) const;
  std::vector<float> Row(uint32_t table, uint64_t id) const;
  uint64_t pull_messages() const;
  uint64_t push_messages() const;
  uint64_t lookup_messages() const;
  uint64_t pull_messages_of(int server) const;
  v1::PullHeader last_pull_of(int server) const;  // or lookup
  v1::PushHeader last_push_of(int server) const;
  uint64_t largest_message() const;
  uint64_t refused_messages() const;  // as larger than message_bytes_max

 private:
  class DataService;
  class CoordinatorService;
  struct FakeServer {
    std::string address;
    int port = 0;
    std::unique_ptr<DataService> service;
    std::unique_ptr<grpc::Server> server;
  };
  struct ServerScript {
    bool live = true;
    bool hanging = false;
    uint64_t pulls = 0;
    v1::PullHeader last_pull;
    v1::PushHeader last_push;
  };
  struct FakeTable {
    v1::TableSpec spec;
    std::vector<FakeShard> shards;
  };

  struct SegmentBytes {
    const char* ids;
    const char* lengths;
    const char* weights;  // or null
  };
  static void ServeBags(const FakeShard& shard, uint32_t dim, const v1::PullHeader& header,
                        const PullAsk& segment, const SegmentBytes& from, v1::PullReply* reply);
  v1::PullReply ServePull(int server, const v1::PullRequest& request);
  v1::PushReply ServePush(int server, const v1::PushRequest& request);
  v1::SegmentReply ServePushSegment(int server, const v1::PushHeader& header,
                                    const PushAsk& segment, const uint64_t* ids,
                                    const char* gradients, Lsn* lsn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True, with `header` filled in, if `bytes` exceed the limit.
  bool RefuseLarge(uint64_t bytes, v1::ReplyHeader* header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For the first message of a stream: the status to end the stream with, or OK and our hello.
  grpc::Status Greet(v1::Hello* hello);
  // Null with `refusal` filled in: unknown shard or wrong epoch.
  FakeShard* FindShard(int server, ShardId id, uint64_t epoch, bool pull, v1::SegmentReply* refusal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::ClusterMap Map() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void AwaitNotHanging(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::vector<ServerScript> scripts_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, FakeTable> tables_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, uint64_t> incarnations_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 1;
  // The coordinator's map, which lags behind where a move was not announced.
  v1::ClusterMap told_ ABSL_GUARDED_BY(mu_);
  PushScript push_script_ ABSL_GUARDED_BY(mu_);
  PullScript pull_script_ ABSL_GUARDED_BY(mu_);
  std::function<bool()> break_after_push_ ABSL_GUARDED_BY(mu_);
  std::function<void()> delay_ ABSL_GUARDED_BY(mu_);
  std::function<void()> open_delay_ ABSL_GUARDED_BY(mu_);
  uint64_t ended_by_others_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<grpc::Status()> greeting_ ABSL_GUARDED_BY(mu_);
  uint64_t message_bytes_max_ ABSL_GUARDED_BY(mu_) = 0;
  bool limit_registered_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t pulls_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t pushes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t lookups_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t largest_ ABSL_GUARDED_BY(mu_) = 0;

  std::vector<FakeServer> servers_;
  std::unique_ptr<CoordinatorService> coordinator_service_;
  std::unique_ptr<grpc::Server> coordinator_;
  std::string coordinator_address_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_CLIENT_FAKE_CLUSTER_H_
