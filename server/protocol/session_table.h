// The sessions that push to one shard and the last sequence of each: the table behind exactly-once.
//
// A function of the log: each entry of a shard's log changes it in one way, so replay, truncation,
// snapshots and moves give the same table. Thread-compatible; owned by the shard's core.
#ifndef HOTBED_SERVER_PROTOCOL_SESSION_TABLE_H_
#define HOTBED_SERVER_PROTOCOL_SESSION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/files/byte_reader.h"
#include "common/ids.h"
#include "server/shard_log/epoch_runs.h"

namespace hotbed {

struct Session {
  Incarnation incarnation = 0;  // lower ones are fenced
  uint64_t last_seq = 0;        // of the last push in the log; 0: opened, nothing pushed
  int64_t heard_ns = 0;         // time of its last push; not part of the state, lost over a restart

  friend bool operator==(const Session& a, const Session& b) {
    return a.incarnation == b.incarnation && a.last_seq == b.last_seq;
  }
};

// Dense, because every shard has an entry for every session. The entries stand in one array with at
// most a third more room than it needs. Tables of more than a few sessions find them through an
// array of 32-bit places, which is kept between 1/4 and 3/4 full. allocated_bytes() is at most
// kBytesPerSession per session, whatever was added and erased before; only while an array moves to
// one of another size do both exist.
class SessionTable {
 public:
  static constexpr size_t kBytesPerSession = 64;

  // Null if the session never opened here, or was forgotten. Valid until the next change.
  const Session* Find(SessionId id) const {
    const uint32_t at = NumberOf(id);
    return at == kNone ? nullptr : &entries_[at].session;
  }
  // `session` must not refer into the table, unless to the entry of `id`.
  void Set(SessionId id, const Session& session);
  void Erase(SessionId id);
  // The session must be there.
  void SetHeard(SessionId id, int64_t heard_ns) {
    entries_[NumberOf(id)].session.heard_ns = heard_ns;
  }
  // visit(SessionId, const Session&), in any order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Entry& entry : entries_) visit(entry.id, entry.session);
  }
  size_t size() const { return entries_.size(); }
  size_t allocated_bytes() const {
    return entries_.capacity() * sizeof(Entry) + places_.capacity() * sizeof(uint32_t);
  }
  friend bool operator==(const SessionTable& a, const SessionTable& b);

  // Little-endian: u32 count, then {session, incarnation, last_seq} u64 each, ascending by session.
  void AppendTo(std::string* out) const;
  // Takes a table off the front of `in`. DataLoss when the bytes are no table.
  static absl::StatusOr<SessionTable> TakeFrom(ByteReader* in);

 private:
  struct Entry {
    SessionId id = 0;
    Session session;
  };
  static constexpr uint32_t kNone = ~0u;
  static constexpr size_t kScannedMax = 8;  // more are found through places_

  // The preferred place of an id. Ids count up; the multiplication moves neighbours far apart.
  size_t HomeOf(SessionId id) const {
    return static_cast<size_t>((id * 0x9e3779b97f4a7c15ull) >> 32) & (places_.size() - 1);
  }
  // Index into entries_, or kNone.
  uint32_t NumberOf(SessionId id) const {
    if (!places_.empty()) return places_[PlaceOf(id)];
    for (uint32_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].id == id) return i;
    }
    return kNone;
  }
  // The place that names the id, or else the free one where it would go. places_ is not empty.
  size_t PlaceOf(SessionId id) const {
    size_t place = HomeOf(id);
    while (places_[place] != kNone && entries_[places_[place]].id != id) {
      place = (place + 1) & (places_.size() - 1);
    }
    return place;
  }
  void FreePlace(size_t place);
  void ReserveEntries(size_t count);
  void MakePlaces();

  std::vector<Entry> entries_;
  // Indexes into entries_: of each session, at HomeOf(id) or, where that was taken, behind it.
  // kNone: free. The size is a power of two, or 0.
  std::vector<uint32_t> places_;
};

// A push to a synchronous table that is in the log and waits for its step's commit.
struct StagedPush {
  Lsn lsn = 0;
  SessionId session = 0;
  uint64_t seq = 0;
  // The push itself, as the shell wrote it (server/shard/staged_rows.h). Only in a stored meta: the
  // core neither reads nor compares it.
  std::string payload;

  friend bool operator==(const StagedPush& a, const StagedPush& b) {
    return a.lsn == b.lsn && a.session == b.session && a.seq == b.seq;
  }
};

// A shard knows the epochs of its entries at least over so many changes of the epoch.
constexpr size_t kHistoryRunsMax = 32;

// The state at `applied_lsn`, stored with a shard's rows by each write-back of all rows. Recovery
// needs it, the rows and the log.
struct ShardMeta {
  Lsn applied_lsn = 0;
  Epoch applied_epoch = 0;  // of the entry at applied_lsn
  // The highest incarnation of any session that was forgotten here; 0: none was.
  Incarnation forgotten = 0;
  SessionTable sessions;
  uint64_t committed_step = 0;     // of the last commit of a synchronous table; 0: none
  std::vector<StagedPush> staged;  // by lsn, all of later steps than committed_step
  // The epochs of the entries up to applied_lsn, as far back as kHistoryRunsMax runs.
  EpochRuns history;
  // The marks of deleted rows that are stored with the rows, at most, and the LSN through which
  // marks may be gone (server/shard/delete_marks.h). The core neither reads nor compares them.
  uint64_t marks = 0;
  Lsn marks_gone = 0;
  // Pieces of the filter of touches, as the rows' store wrote them (TieredStore::SaveTouchFilter),
  // one behind the other; empty: none. The core does not read them.
  std::string touch_filter;

  std::string Serialize() const;
  // Empty bytes are the meta of a shard that never held a row. DataLoss names the damage.
  static absl::StatusOr<ShardMeta> Parse(absl::string_view bytes);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_SESSION_TABLE_H_
