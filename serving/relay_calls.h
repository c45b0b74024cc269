// Answers other serving servers whose copies follow the ones of this server (CopyRelay). A call
// waits until one of its shards has something new, or until its time is over; a thread of its own
// answers, so that the copies do not wait for their followers. Thread-safe.
#ifndef HOTBED_SERVING_RELAY_CALLS_H_
#define HOTBED_SERVING_RELAY_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/threads/thread_pool.h"
#include "proto/serving.grpc.pb.h"
#include "serving/answer_budget.h"
#include "serving/copy_lists.h"
#include "serving/table_replicas.h"

namespace hotbed {

constexpr uint64_t kRelayAnswerBytesMax = 16u << 20;

class RelayCalls final : public v1::ServingRelay::CallbackService {
 public:
  // Both outlive it.
  RelayCalls(TableReplicas* tables, const Clock* clock);
  ~RelayCalls() override { Stop(); }

  // InvalidArgument: no shards, or too many. ResourceExhausted: too many calls wait.
  grpc::ServerUnaryReactor* FollowCopy(grpc::CallbackServerContext* context,
                                       const v1::FollowCopyRequest* request,
                                       v1::FollowCopyReply* reply) override
      ABSL_LOCKS_EXCLUDED(mu_);
  grpc::ServerUnaryReactor* ListCopy(grpc::CallbackServerContext* context,
                                     const v1::ListCopyRequest* request,
                                     v1::ListCopyReply* reply) override;
  // Calls in progress are answered.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Call;
  struct Waiting {
    Call* call = nullptr;
    const v1::FollowCopyRequest* request = nullptr;
    v1::FollowCopyReply* reply = nullptr;
    int64_t until_ns = 0;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // True: it is answered.
  bool Answer(const Waiting& waiting, bool stops);

  TableReplicas* const tables_;
  const Clock* const clock_;
  AnswerBudget budget_{kRelayAnswerBytesMax};  // its own: lookups in plenty stop no follower
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  size_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Waiting> arrived_ ABSL_GUARDED_BY(mu_);
  CopyLists lists_;
  ThreadPool list_threads_;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_RELAY_CALLS_H_
