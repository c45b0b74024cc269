// A whole cluster in this process: the coordinator, and a shard host that has every shard. What
// travels over a network elsewhere is a call here.
//
//   DIR/coordinator  the metadata store
//   DIR/server       log, spill tier, catalog, promises
//
// Clients reach it by local_transport and local_control_plane. Thread-safe.
#ifndef HOTBED_LOCAL_LOCAL_ENGINE_H_
#define HOTBED_LOCAL_LOCAL_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/threads/await_for.h"
#include "hotbed/local.h"
#include "local/memory_directory.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/store/data_dir.h"
#include "proto/vocabulary.pb.h"
#include "server/cluster/assignment_applier.h"
#include "server/cluster/heartbeat_report.h"
#include "server/export/checkpoint_source.h"
#include "server/export/save_jobs.h"
#include "server/host/shard_host.h"
#include "server/output/softmax_calls.h"
#include "server/streams/data_plane.h"

namespace hotbed {

class LocalEngine {
 public:
  // The address of its only server in the cluster map; nothing listens there.
  static constexpr char kAddress[] = "in-process:1";

  // As ConnectLocal says. `seed` names the cluster of a new directory, and this process.
  static absl::StatusOr<std::shared_ptr<LocalEngine>> Open(const std::string& directory,
                                                           const LocalOptions& options,
                                                           uint64_t seed);
  // Writes all rows back. No client is left.
  ~LocalEngine();
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  DataPlane* plane() { return plane_.get(); }
  Coordinator* coordinator() { return coordinator_.get(); }
  const ShardHost& host() const { return *host_; }
  SaveJobs* saves() { return saves_.get(); }
  // Its threads begin with the first call.
  SoftmaxCalls* softmax() ABSL_LOCKS_EXCLUDED(mu_);

  // One after another, as at a server.
  absl::StatusOr<v1::NumberReply> Number(const v1::NumberRequest& request)
      ABSL_LOCKS_EXCLUDED(numbering_);

  // A request to the coordinator. DeadlineExceeded: no answer within `timeout`; the change may have
  // been made.
  template <typename Answer>
  absl::StatusOr<Answer> Call(Request&& request, absl::Duration timeout) {
    const auto waiting = std::make_shared<Waiting>();
    coordinator_->Submit(std::move(request), [waiting](absl::StatusOr<Reply> reply) {
      absl::MutexLock lock(&waiting->mu);
      waiting->reply = std::move(reply);
    });
    absl::MutexLock lock(&waiting->mu);
    const auto answered = [&waiting]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(waiting->mu) {
      return waiting->reply.has_value();
    };
    if (!AwaitFor(&waiting->mu, absl::Condition(&answered), timeout)) {
      return absl::DeadlineExceededError(
          absl::StrCat("the local engine did not answer within ", absl::FormatDuration(timeout)));
    }
    if (!waiting->reply->ok()) return waiting->reply->status();
    return std::get<Answer>(**std::move(waiting->reply));
  }

  // Takes up what the coordinator has decided so far: opens and activates new shards, drops others,
  // learns of new sessions. A call that returned OK leaves every shard as it was then served.
  absl::Status TakeUp() ABSL_LOCKS_EXCLUDED(taking_up_);

  // Blocks until the coordinator has news that came after `seen`, which it then updates, or until
  // `*stopped`; false then. Wake() makes waiting callers look.
  bool AwaitNews(uint64_t* seen, const bool* stopped) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake(bool* stopped) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    absl::Mutex mu;
    std::optional<absl::StatusOr<Reply>> reply ABSL_GUARDED_BY(mu);
  };

  LocalEngine() = default;
  absl::Status Start(const std::string& path, const LocalOptions& options, bool in_memory,
                     uint64_t seed);
  absl::Status StartCoordinator(const std::string& path, uint64_t seed);
  absl::Status StartHost(const std::string& path, const LocalOptions& options, bool in_memory);
  absl::Status Register(uint64_t host_bytes);
  absl::Status Beat() ABSL_EXCLUSIVE_LOCKS_REQUIRED(taking_up_);
  absl::Status Activate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(taking_up_);
  void Run();

  const Clock* const clock_ = Clock::Real();
  std::unique_ptr<MemoryDirectory> memory_;
  DataDir metadata_;
  PlaceFinder places_{FileSystem::Real()};
  CheckpointSource restored_{&places_, clock_};
  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<SaveJobs> saves_;
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<AssignmentApplier> applier_;
  ServerId server_ = 0;
  Incarnation incarnation_ = 0;

  absl::Mutex taking_up_ ABSL_ACQUIRED_BEFORE(mu_);
  std::optional<HeartbeatReport> report_ ABSL_GUARDED_BY(taking_up_);

  absl::Mutex mu_;
  uint64_t news_ ABSL_GUARDED_BY(mu_) = 1;  // counts what the coordinator told
  bool take_up_ ABSL_GUARDED_BY(mu_) = false;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<SoftmaxCalls> softmax_ ABSL_GUARDED_BY(mu_);
  absl::Mutex numbering_;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_LOCAL_LOCAL_ENGINE_H_
