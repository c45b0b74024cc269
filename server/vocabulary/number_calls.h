// The calls for numbers of vocabularies that wait at a server. A few threads answer them; those for
// one shard come one after another, because each decides from what the one before has left.
// Thread-safe.
#ifndef HOTBED_SERVER_VOCABULARY_NUMBER_CALLS_H_
#define HOTBED_SERVER_VOCABULARY_NUMBER_CALLS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/tool_calls.h"
#include "proto/vocabulary.pb.h"
#include "server/host/shard_host.h"

namespace hotbed {

constexpr size_t kNumberCallsMax = 256;  // that wait

class NumberCalls {
 public:
  // Both outlive it.
  NumberCalls(ShardHost* host, const Clock* clock);
  ~NumberCalls() { Stop(); }

  // Does not block. ResourceExhausted: too many calls wait.
  void Call(v1::NumberRequest request, const ToolCalls::MayUse& may_use, ToolCalls::Done done)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Calls in progress are answered, those that wait are refused.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    v1::NumberRequest request;
    int64_t deadline_ns = 0;
    ToolCalls::Done done;
  };
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // The first call of a shard that no thread is at; calls_.end(): there is none.
  std::deque<Waiting>::iterator FirstFree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ShardHost* const host_;
  const Clock* const clock_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiting> calls_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uint64_t> busy_ ABSL_GUARDED_BY(mu_);  // shards that a thread is at
  std::vector<std::thread> threads_;
};

// The methods on the data port.
std::map<std::string, ToolCalls::SlowCall> VocabularyCalls(NumberCalls* numbers);

}  // namespace hotbed

#endif  // HOTBED_SERVER_VOCABULARY_NUMBER_CALLS_H_
