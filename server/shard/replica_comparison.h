// Finds out whether this replica still equals its primary, bit by bit: both keep a rolling hash of
// what they apply (rolling_hash.h), and the primary sends its sum with every append.
//
// A replica that differs gives itself up: nobody can tell which of the two is right, but only the
// primary acknowledges pushes.
//
// Confined to the shard's strand.
#ifndef HOTBED_SERVER_SHARD_REPLICA_COMPARISON_H_
#define HOTBED_SERVER_SHARD_REPLICA_COMPARISON_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/replica/rolling_hash.h"
#include "server/shard/shard_context.h"

namespace hotbed {

class ReplicaComparison {
 public:
  explicit ReplicaComparison(ShardContext* shard) : shard_(*shard) {}

  // Counts the entries above `lsn`.
  void Start(Lsn lsn);
  // The entry at `lsn` was applied. `record`: its record as it stands in the log; empty: unknown.
  // `changed`: the ids of the rows that it changed. `rows_known`: false where the rows may be ahead
  // of the log.
  void Applied(Lsn lsn, absl::Span<const uint8_t> record, absl::Span<const uint64_t> changed,
               bool rows_known, bool deleted = false);
  // Adds the sum to an append of this primary.
  void FillIn(ReplicaMessage* append) const;
  // Compares with the sum of an append that came from the primary.
  void Compare(const ReplicaMessage& append);

 private:
  void OnVerdict(RollingHash::Verdict verdict, Lsn lsn);

  // What it takes while the shard is followed or follows.
  struct State {
    RollingHash hash;
    std::vector<uint8_t> row;  // a scratch
  };

  ShardContext& shard_;
  std::unique_ptr<State> state_;  // null: not started
  Epoch compared_epoch_ = 0;      // the epoch of the primary that it was compared with
  // An entry of that epoch is missing in the hash: as its primary, this process sends no sum.
  Epoch incomplete_epoch_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_COMPARISON_H_
