// One Push from its start until every shard has answered, which may be after its Future: a part
// without an answer stays in its shard's chain, because the parts behind it need its sequence
// number.
#ifndef HOTBED_CLIENT_PUSH_PUSH_CALL_H_
#define HOTBED_CLIENT_PUSH_PUSH_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  uint32_t column_first = 0;  // what the shard has of a row
  uint32_t columns = 0;
  bool last_of_shard = false;
  bool maybe_applied = false;  // it was sent, and no answer told what became of it
  BytesRef ids;
  BytesRef gradients;

  ShardId shard_id() const { return {table->id(), shard}; }
  uint64_t bytes() const { return ids.size + gradients.size; }
  // Leaves out the rows up to sequence number `seq` if that is one of the part's before its last:
  // an earlier incarnation of this trainer cut the step elsewhere, and they are applied.
  void DropThrough(uint64_t seq);
  std::string Where() const;  // table and shard, for messages
  // How the part ends when it is refused for good with `status`: kUnknown where an earlier send of
  // it may have been applied, which this refusal says nothing about.
  absl::Status EndOf(const absl::Status& status) const;
};

// Guarded by the engine's mutex once it is sent.
struct PushCall {
  uint64_t step = 0;
  uint64_t ticket = 0;
  RowType gradient_type = RowType::kFp32;
  bool has_learning_rate = false;
  float learning_rate = 0.0f;
  bool assign = false;
  int64_t deadline_ns = 0;
  uint64_t bytes = 0;
  PushWindow::Place place;

  std::vector<PushPart> parts;  // never moved once chained
  size_t parts_left = 0;
  std::vector<PushResult::Shard> refused;
  absl::Status last_error;  // of what is still tried

  // Set while somebody waits; a call that ended kIndeterminate has none until Client::Retry.
  std::optional<Promise<PushResult>> promise;

  // What is known now: kIndeterminate as long as parts are left.
  PushResult Result() const;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_CALL_H_
