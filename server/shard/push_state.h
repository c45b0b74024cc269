// An entry on its way through one shard: from the checks of its push to the reply.
//
// Recycled per thread: Take and Give. One owner at a time: the strand's queue, the state machine
// (as a token), the log, or a list of waiting requests. Thread-compatible.
#ifndef HOTBED_SERVER_SHARD_PUSH_STATE_H_
#define HOTBED_SERVER_SHARD_PUSH_STATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/threads/strand.h"
#include "server/protocol/shard_core.h"
#include "server/shard/in_flight.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/request/requests.h"
#include "server/shard/request/segment_result.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

struct PushState final : public Strand::Deferred {
  // Null: an entry of the shard's own (forget), an entry from the primary, or an entry whose sender
  // has been answered already.
  PushWork* work = nullptr;
  PushSegment* segment = nullptr;

  // The rows to apply: those of the segment that the table's NaN policy has left. A commit: the
  // sessions whose pushes count.
  const uint64_t* ids = nullptr;
  const uint8_t* const* gradients = nullptr;
  uint32_t count = 0;
  std::vector<uint64_t> kept_ids;
  std::vector<const uint8_t*> kept_gradients;
  UpdateScalars scalars;

  // Found before the core saw the push.
  Refusal refusal;

  // The reply may be decided (a step-down) while the log or the store still reads the message: it
  // goes out when neither does.
  CoreReply reply;
  bool replied = false;
  bool in_log = false;
  bool in_core = false;
  Shard* logged_by = nullptr;  // Shard::LogAtOnce has set it
  bool cut = false;            // another primary's entry, or none, stands in its place
  // Set while the entry is in the log although it has left the core.
  InFlight::Token running;
  // The record for other replicas. Where it is set the log writes from it, and the sender's message
  // is not needed.
  SharedBytes record;
  uint64_t ticket = 0;         // of the entry that was handed to the log
  int64_t waits_until_ns = 0;  // for the shard to know its record or to become active
  int64_t since_ns = 0;        // of the stage that the push is in
  LogAppend append;
  absl::Status append_status;

  // Makes `record` from append.header, ids and gradients.
  void EncodeRecord();
  // Makes ids and gradients point into `record`. Ids that are not aligned there are copied.
  void PointIntoRecord();
  // Takes `bytes` as the record. False: not a whole record of the log, or damaged; then no field of
  // the state may be used.
  bool TakeRecord(SharedBytes bytes);

  // For the log of slow requests, where a sender waits. A stage that ends begins the next one.
  void BeginStage() {
    if (work != nullptr) since_ns = work->stages.NowNs();
  }
  void EndStage(RequestStages::Stage stage) {
    if (work != nullptr) since_ns = NoteStage(stage, work, segment, since_ns);
  }

  void Settle() override;  // Shard::TakeLogged, of logged_by

  // An empty state, one of this thread's spare ones if there are any.
  static PushState* Take();
  void Give();
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_PUSH_STATE_H_
