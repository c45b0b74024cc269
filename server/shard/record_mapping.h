// An entry of the log in its three shapes: CoreEntry (the state machine's), RecordHeader (the
// log's) and RowUpdates (the rows').
#ifndef HOTBED_SERVER_SHARD_RECORD_MAPPING_H_
#define HOTBED_SERVER_SHARD_RECORD_MAPPING_H_

#include <cstdint>

#include "common/ids.h"
#include "server/protocol/core_messages.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

// Without payload and ticket.
inline CoreEntry EntryOf(const RecordHeader& header) {
  CoreEntry entry;
  entry.kind = header.kind;
  entry.open = header.open;
  entry.staged = header.staged;
  entry.epoch = header.epoch;
  entry.lsn = header.lsn;
  entry.session = header.session;
  entry.incarnation = header.incarnation;
  entry.seq = header.seq;
  entry.prev_seq = header.prev_seq;
  return entry;
}

// Without the fields that describe the rows.
inline RecordHeader HeaderOf(const CoreEntry& entry, ShardId shard) {
  RecordHeader header;
  header.kind = entry.kind;
  header.open = entry.open;
  header.staged = entry.staged;
  header.shard = shard;
  header.epoch = entry.epoch;
  header.lsn = entry.lsn;
  header.session = entry.session;
  header.incarnation = entry.incarnation;
  header.seq = entry.seq;
  header.prev_seq = entry.prev_seq;
  return header;
}

// The update of a push: header.id_count ids, and one gradient pointer per id.
inline RowUpdates UpdatesOf(const RecordHeader& header, const uint64_t* ids,
                            const uint8_t* const* gradients) {
  RowUpdates updates;
  updates.ids = ids;
  updates.count = header.id_count;
  updates.gradient_type = header.gradient_type;
  updates.gradients = gradients;
  updates.scalars = header.scalars;
  updates.assign = header.assign;
  updates.lsn = header.lsn;
  return updates;
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_RECORD_MAPPING_H_
