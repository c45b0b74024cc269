// The surroundings of a shard's parts: options, state machine, strand and rows. The shard makes one
// before its parts and passes it to their constructors; only `store` is set later, and cleared when
// the rows are released.
//
// Thread rule: `core`, `store` and the strand-confined half of `serving` belong to the shard's
// strand. Everything else may be used by any thread.
#ifndef HOTBED_SERVER_SHARD_SHARD_CONTEXT_H_
#define HOTBED_SERVER_SHARD_SHARD_CONTEXT_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/threads/strand.h"
#include "server/protocol/shard_core.h"
#include "server/shard/in_flight.h"
#include "server/shard/request/pull_gate.h"
#include "server/shard/request/push_gate.h"
#include "server/shard/serving_state.h"
#include "server/shard/shard_gauges.h"
#include "server/shard/shard_options.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

struct ShardContext {
  const ShardOptions& options;
  ShardCore& core;
  Strand& strand;
  InFlight& in_flight;
  ServingState& serving;
  ShardGauges& gauges;
  PullGate& gate;
  PushGate& push_gate;
  const uint32_t dim;
  const bool synchronous;
  TieredStore* store = nullptr;  // null: could not be opened, or was released

  bool logged() const { return options.log != nullptr; }
  std::string Name() const { return options.Name(); }
  // Runs `task` on the strand, perhaps before returning; the shard is in flight until it has run.
  template <typename Task>
  void Post(Task task) {
    strand.Run([running = in_flight.Begin(), task = std::move(task)]() mutable { task(); });
  }
  // Runs `task` on the strand and waits for it. Never called on the strand.
  template <typename Task>
  void RunAndWait(Task task) {
    absl::Notification done;
    strand.Run([&] {
      task();
      done.Notify();
    });
    done.WaitForNotification();
  }
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SHARD_CONTEXT_H_
