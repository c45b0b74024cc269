// Chooses the server that answers the pull of a shard: its primary, or any other server with a
// replica; and says when another one should be asked, too. Pure but for its mutex: time comes in
// with the calls. Thread-safe.
//
// Servers whose answers take at most twice as long as those of the nearest, plus half a
// millisecond, are as good as the nearest, and calls take turns among them. A server that has not
// answered yet counts as near, so that it is tried. Times run from sending to the answer and are
// averaged over about the last eight answers.
//
// A server that owes answers and has sent none for three times the usual time, and 6 ms, is silent:
// other servers are asked until it answers. A server that failed is avoided for kForgetNs; then one
// call tries it, and the others wait for its answer.
//
// An answer that takes longer than the usual time, which is the 95th percentile of the last
// seconds, may be asked for at another server (a hedge). Hedges are bounded to a twentieth of the
// messages, plus a burst of kHedgesMax. Messages at a silent server do not count.
#ifndef HOTBED_CLIENT_MAP_READ_CHOICE_H_
#define HOTBED_CLIENT_MAP_READ_CHOICE_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "client/map/usual_time.h"
#include "common/hedge_budget.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"

namespace hotbed {

class ReadChoice {
 public:
  static constexpr int64_t kForgetNs = 1'000'000'000;
  static constexpr int64_t kWatchNs = 2'000'000;  // between calls of Watch
  static constexpr int64_t kHedgesMax = 20;
  // While fewer than UsualTime::kTimesMin answers are known.
  static constexpr int64_t kHedgeAfterUnknownNs = 20'000'000;

  // Chooses among the primary, the backups and the read replicas. `turn` is the call's (NextTurn),
  // the same for all of its shards.
  ServerId Choose(const ShardRecord& record, uint64_t turn, int64_t now_ns);
  // Another server than `asked` that has a replica and neither failed nor is silent.
  std::optional<ServerId> ChooseOther(const ShardRecord& record, ServerId asked,
                                      uint64_t turn) const;
  uint64_t NextTurn() { return turn_.fetch_add(1, std::memory_order_relaxed); }

  // Each message that was Sent is Answered, Failed or NotSent later.
  void Sent(ServerId server);
  void Answered(ServerId server, int64_t took_ns);
  void Failed(ServerId server, int64_t now_ns);
  void NotSent(ServerId server);

  // To be called every kWatchNs while messages are in flight: finds silent servers. A pause between
  // two calls counts as two intervals at most, so that a client that was stopped itself does not
  // take all servers for silent.
  void Watch(int64_t now_ns);
  bool Silent(ServerId server) const;
  // The age at which a message is worth a hedge.
  int64_t HedgeAfterNs() const;
  // Whether the budget has a hedge left.
  bool MayHedge() const { return hedges_.Has(); }
  // Takes `messages` hedges out of the budget, before they are sent. False: it has not as many.
  bool TakeHedges(int64_t messages) { return hedges_.Take(messages); }

 private:
  struct Seen {
    int64_t took_ns = 0;   // moving average; 0: unknown
    bool failed = false;   // since its last answer
    int64_t retry_ns = 0;  // failed: one call may try it from then on
    uint64_t trial_turn = 0;
    bool on_trial = false;   // the call of trial_turn tries it
    bool connecting = true;  // the next answer includes the connection, and is not counted
    uint32_t owed = 0;       // answers
    int64_t silent_ns = 0;   // for how long it has owed answers and sent none
    bool silent = false;

    bool able() const { return !failed && !silent; }
    void Settle() { owed -= owed > 0 ? 1 : 0; }
  };
  using Holders = absl::InlinedVector<ServerId, 8>;

  static constexpr int64_t kSilentNsMin = 6'000'000;
  static constexpr int64_t kSilentUnknownNs = 50'000'000;
  static constexpr int64_t kHedgeNsMin = 1'000'000;
  static constexpr double kHedgedPart = 1.0 / 20;

  // Sorted by server, so that a call reads all shards that a server holds from that server.
  static Holders HoldersOf(const ShardRecord& record);
  bool TriesNow(Seen* seen, uint64_t turn, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<uint64_t> turn_{0};
  mutable absl::Mutex mu_;
  absl::flat_hash_map<ServerId, Seen> seen_ ABSL_GUARDED_BY(mu_);
  UsualTime usual_ ABSL_GUARDED_BY(mu_);
  int64_t usual_ns_ ABSL_GUARDED_BY(mu_) = 0;  // of the last Watch; 0: unknown
  int64_t watched_ns_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t aged_ns_ ABSL_GUARDED_BY(mu_) = 0;
  HedgeBudget hedges_{kHedgedPart, kHedgesMax};
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_READ_CHOICE_H_
