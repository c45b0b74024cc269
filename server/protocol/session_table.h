// Who pushes to one shard and how far each got: the table behind exactly-once (reliability page,
// section 3.6).
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
#include "common/byte_reader.h"
#include "common/ids.h"

namespace hotbed {

struct Session {
  Incarnation incarnation = 0;  // lower ones are fenced
  uint64_t last_seq = 0;        // of the last push in the log; 0: opened, nothing pushed
  int64_t heard_ns = 0;         // when it last pushed; not part of the state, lost over a restart

  friend bool operator==(const Session& a, const Session& b) {
    return a.incarnation == b.incarnation && a.last_seq == b.last_seq;
  }
};

// Dense, because there is one for each session on each shard: the entries stand together in one
// array that has at most a third more room than it needs, and are found through an array of 32-bit
// places, kept between 1/4 and 3/4 full, that only tables of more than a few sessions have.
// allocated_bytes() is at most kBytesPerSession for each session, whatever came and went; only
// while an array is moved to one of another size both stand.
class SessionTable {
 public:
  static constexpr size_t kBytesPerSession = 64;

  // Null when the session never opened here, or was forgotten. Valid until the next change.
  const Session* Find(SessionId id) const {
    const uint32_t at = NumberOf(id);
    return at == kNone ? nullptr : &entries_[at].session;
  }
  // `session` is none of the table's own, unless it is that of `id`.
  void Set(SessionId id, const Session& session);
  void Erase(SessionId id);
  // Of a session that is there.
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

  // Its place if nothing else stood there. Ids count up: multiplied, neighbours end far apart.
  size_t HomeOf(SessionId id) const {
    return static_cast<size_t>((id * 0x9e3779b97f4a7c15ull) >> 32) & (places_.size() - 1);
  }
  // Where in entries_; kNone: nowhere.
  uint32_t NumberOf(SessionId id) const {
    if (!places_.empty()) return places_[PlaceOf(id)];
    for (uint32_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].id == id) return i;
    }
    return kNone;
  }
  // The place that names it, or else the free one where it would go. There are places.
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
  // Of each session its number in entries_, at HomeOf(id) or, where that was taken, behind it;
  // kNone: free. A power of two, or none at all.
  std::vector<uint32_t> places_;
};

// A push to a synchronous table that is in the log and waits for its step's commit.
struct StagedPush {
  Lsn lsn = 0;
  SessionId session = 0;
  uint64_t seq = 0;
  // The push itself, as the shell wrote it (server/shard/staged_rows.h). Only in a stored meta: the core
  // neither reads nor compares it.
  std::string payload;

  friend bool operator==(const StagedPush& a, const StagedPush& b) {
    return a.lsn == b.lsn && a.session == b.session && a.seq == b.seq;
  }
};

// What a sweep stores beside a shard's rows, and all that recovery needs beside the log: the state
// at `applied_lsn`.
struct ShardMeta {
  Lsn applied_lsn = 0;
  Epoch applied_epoch = 0;  // of the entry at applied_lsn
  // The highest incarnation of any session that was forgotten here; 0: none was.
  Incarnation forgotten = 0;
  SessionTable sessions;
  uint64_t committed_step = 0;     // of the last commit of a synchronous table; 0: none
  std::vector<StagedPush> staged;  // by lsn, all of later steps than committed_step

  std::string Serialize() const;
  // Empty bytes are the meta of a shard that never held a row. DataLoss otherwise names what is
  // wrong.
  static absl::StatusOr<ShardMeta> Parse(absl::string_view bytes);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_SESSION_TABLE_H_
