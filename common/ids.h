// Identifiers that cross layers. All are plain values, cheap to copy, safe from any thread.
#ifndef HOTBED_COMMON_IDS_H_
#define HOTBED_COMMON_IDS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace hotbed {

using TableId = uint32_t;    // never reused within a cluster; 0 is never assigned
using Epoch = uint64_t;      // of one shard; 0 means "none"
using Lsn = uint64_t;        // of one shard's log; the first record is 1
using SessionId = uint64_t;  // of one client name; 0 is never assigned
// One life of a session or of a server process; grows by at least one at every start.
using Incarnation = uint64_t;
using ServerId = uint64_t;  // stable over restarts, kept in the data directory; 0 is never assigned

// One immutable piece of a table. `index` counts the table's shards from 0 in position order.
struct ShardId {
  TableId table = 0;
  uint32_t index = 0;

  // Packed form on the wire and in the log: table in the high half.
  uint64_t packed() const { return (static_cast<uint64_t>(table) << 32) | index; }
  static ShardId FromPacked(uint64_t v) {
    return {static_cast<TableId>(v >> 32), static_cast<uint32_t>(v)};
  }
  std::string ToString() const { return absl::StrCat("shard ", table, "/", index); }

  friend bool operator==(const ShardId& a, const ShardId& b) {
    return a.table == b.table && a.index == b.index;
  }
  friend bool operator<(const ShardId& a, const ShardId& b) { return a.packed() < b.packed(); }
  template <typename H>
  friend H AbslHashValue(H h, const ShardId& s) {
    return H::combine(std::move(h), s.packed());
  }
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_IDS_H_
