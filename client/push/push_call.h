// One Push from its start until every shard has answered, which may be after its Future is ready: a
// part without an answer stays in its shard's chain, because the parts behind it need its sequence
// number.
#ifndef HOTBED_CLIENT_PUSH_PUSH_CALL_H_
#define HOTBED_CLIENT_PUSH_PUSH_CALL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/map/table_handle.h"
#include "client/net/buffer_pool.h"
#include "client/push/push_chain.h"
#include "client/push/push_window.h"
#include "common/ids.h"
#include "hotbed/client.h"

namespace hotbed {

struct PushCall;

struct PushPart : ChainedPart {
  PushCall* call = nullptr;
  const TableHandle* table = nullptr;
  uint32_t shard = 0;
  uint32_t rows = 0;
  uint32_t column_first = 0;  // of a row, the shard has `columns` columns from this one on
  uint32_t columns = 0;
  bool last_of_shard = false;
  bool shows = false;          // each gradient ends with shows and clicks
  bool maybe_applied = false;  // it was sent, and no answer told whether it was applied
  struct Bytes {
    const char* data = nullptr;
    size_t size = 0;
  };
  const BufferRef* buffer = nullptr;  // of the call; holds both
  Bytes ids;
  Bytes gradients;

  ShardId shard_id() const { return {table->id(), shard}; }
  uint64_t bytes() const { return ids.size + gradients.size; }
  // Drops the rows up to sequence number `seq` if that is one of the part's numbers but not its
  // last: an earlier incarnation of this trainer cut the step differently, and those rows are
  // applied.
  void DropThrough(uint64_t seq);
  std::string Where() const { return table->WhereOf(shard); }
  // The part of shard `of_shard` with the `wanted` rows alone, all under its last number.
  PushPart OfRows(uint32_t of_shard, absl::FunctionRef<bool(uint64_t id)> wanted) const;
  // The result of the part when it is refused for good with `status`: kUnknown where an earlier
  // send of it may have been applied, which the refusal does not rule out.
  absl::Status EndOf(const absl::Status& status) const;
};

// Guarded by the engine's mutex once it is sent.
struct PushCall {
  uint64_t step = 0;
  uint64_t ticket = 0;
  RowType gradient_type = RowType::kFp32;
  bool deletes = false;  // the rows are deleted; the parts have no gradients
  PushOptions options;
  std::string traceparent;  // empty: the call belongs to no trace
  int64_t deadline_ns = 0;
  uint64_t bytes = 0;
  PushWindow::Entry entry;

  std::deque<BufferRef> buffers;   // of the parts; never moved
  std::vector<PushPart> parts;     // never moved once chained
  std::deque<PushPart> cut_parts;  // of parts whose shard was cut meanwhile; never moved
  uint64_t cuts = 0;               // ClusterMap::cuts of the plan
  size_t parts_left = 0;
  std::vector<PushResult::Shard> refused;
  absl::Status last_error;  // of parts that will be sent again

  // Set while there is a Future that is not ready. A call that ended kIndeterminate has none until
  // Client::Retry.
  std::optional<Promise<PushResult>> promise;

  // The result as of now: kIndeterminate while parts are left.
  PushResult Result() const;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_CALL_H_
