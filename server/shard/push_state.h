// A push on its way through one shard: from its checks to its reply. Recycled; owned by whoever
// holds it, one at a time.
#ifndef HOTBED_SERVER_SHARD_PUSH_STATE_H_
#define HOTBED_SERVER_SHARD_PUSH_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/protocol/shard_core.h"
#include "server/shard/replica_message.h"
#include "server/shard/requests.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class Shard;

struct PushState {
  Shard* shard = nullptr;
  // Null: an entry of the shard's own (forget), one of another copy, or one whose sender was
  // answered before it was known what becomes of it.
  PushWork* work = nullptr;
  PushSegment* segment = nullptr;

  // The rows to apply: the segment's, or what the table's NaN policy left of them.
  const uint64_t* ids = nullptr;
  const uint8_t* const* gradients = nullptr;
  uint32_t count = 0;
  std::vector<uint64_t> kept_ids;
  std::vector<const uint8_t*> kept_gradients;
  UpdateScalars scalars;

  SegmentCode refusal = SegmentCode::kOk;
  std::string detail;

  // The reply may be decided (a step-down) while the log or the store still reads the message: it
  // goes out when all are done with it.
  CoreReply reply;
  bool replied = false;
  bool in_log = false;
  bool in_core = false;
  bool cut = false;  // another primary's entry, or none, stands in its place
  // The record for other copies. Where it is set the log writes from it, and the sender's message
  // is not needed.
  SharedBytes record;
  uint64_t ticket = 0;         // of the entry that was handed to the log
  int64_t waits_until_ns = 0;  // for the shard to know its record or to become active
  LogAppend append;
  absl::Status append_status;

  // Makes `record` of append.header, ids and gradients.
  void EncodeRecord();
  // Has ids and gradients point into `record`, whose ids are copied unless they are aligned.
  void PointIntoRecord();
  // Takes `bytes` for the record. False: no whole record of the log, or damaged; then nothing of
  // the state is to be used.
  bool TakeRecord(SharedBytes bytes);

  // From this thread's spare ones, or new; empty.
  static PushState* Take();
  void Give();
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_PUSH_STATE_H_
