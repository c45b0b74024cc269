// A push on its way through one shard: from its checks to its reply. Recycled; owned by whoever
// holds it, one at a time.
#ifndef HOTBED_SERVER_PUSH_STATE_H_
#define HOTBED_SERVER_PUSH_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/requests.h"
#include "server/shard_core.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class Shard;

struct PushState {
  Shard* shard = nullptr;
  PushWork* work = nullptr;  // null: an entry of the shard's own (forget)
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
  uint64_t ticket = 0;  // of the hand-over to the log (CoreEntry::ticket)
  LogAppend append;
  absl::Status append_status;

  // From this thread's spare ones, or new; empty.
  static PushState* Take();
  void Give();
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PUSH_STATE_H_
