// Who pushes to one shard and how far each got: the table behind exactly-once (reliability page,
// section 3.6).
//
// A function of the log: each entry of a shard's log changes it in one way, so replay, truncation,
// snapshots and moves give the same table. Thread-compatible; owned by the shard's core.
#ifndef HOTBED_SERVER_SESSION_TABLE_H_
#define HOTBED_SERVER_SESSION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "server/byte_reader.h"

namespace hotbed {

struct Session {
  Incarnation incarnation = 0;  // lower ones are fenced
  uint64_t last_seq = 0;        // of the last push in the log; 0: opened, nothing pushed
  int64_t heard_ns = 0;         // when it last pushed; not part of the state, lost over a restart

  friend bool operator==(const Session& a, const Session& b) {
    return a.incarnation == b.incarnation && a.last_seq == b.last_seq;
  }
};

// Dense, because there is one for each session on each shard, and one look at memory for each push:
// entries of half a cache line stand at their home in one array or, where that is taken, behind it.
// The array is kept between 1/2 and 2/3 full, so that allocated_bytes() is at most kBytesPerSession
// for each session, whatever came and went; only while it is moved to one of another size both
// stand.
class SessionTable {
 public:
  static constexpr size_t kBytesPerSession = 64;

  // Null when the session never opened here, or was forgotten. Valid until the next change.
  const Session* Find(SessionId id) const {
    if (entries_.empty()) return nullptr;
    const Entry& entry = entries_[PlaceOf(id)];
    return entry.free() ? nullptr : &entry.session;
  }
  // `session` is none of the table's own, unless it is that of `id`.
  void Set(SessionId id, const Session& session);
  void Erase(SessionId id);
  // Of a session that is there.
  void SetHeard(SessionId id, int64_t heard_ns) {
    entries_[PlaceOf(id)].session.heard_ns = heard_ns;
  }
  // visit(SessionId, const Session&), in any order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Entry& entry : entries_) {
      if (!entry.free()) visit(entry.id, entry.session);
    }
  }
  size_t size() const { return size_; }
  size_t allocated_bytes() const { return entries_.capacity() * sizeof(Entry); }

  // Where the entries are, for FetchAhead.
  struct Array {
    uintptr_t at = 0;
    size_t count = 0;
  };
  Array array() const { return {reinterpret_cast<uintptr_t>(entries_.data()), entries_.size()}; }
  // Has what Find(id) will read brought to the cache. Any thread: `array` may be an old one, or two
  // halves of different ones, since memory is named here and not touched.
  static void FetchAhead(const Array& array, SessionId id) {
    if (array.count == 0) return;
    const uintptr_t home = array.at + sizeof(Entry) * HomeOf(id, array.count);
    __builtin_prefetch(reinterpret_cast<const void*>(home), 1);
    // The one behind is looked at by one search in four.
    __builtin_prefetch(reinterpret_cast<const void*>(home + kLineBytes), 1);
  }
  friend bool operator==(const SessionTable& a, const SessionTable& b);

  // Little-endian: u32 count, then {session, incarnation, last_seq} u64 each, ascending by session.
  void AppendTo(std::string* out) const;
  // Takes a table off the front of `in`. DataLoss when the bytes are no table.
  static absl::StatusOr<SessionTable> TakeFrom(ByteReader* in);

 private:
  static constexpr size_t kLineBytes = 64;
  static constexpr int64_t kFree = std::numeric_limits<int64_t>::min();
  struct alignas(32) Entry {
    SessionId id = 0;
    Session session{0, 0, kFree};  // never heard at such a time

    bool free() const { return session.heard_ns == kFree; }
  };

  // Its place if nothing else stood there. Ids count up: multiplied, neighbours end far apart.
  static size_t HomeOf(SessionId id, size_t count) {
    return static_cast<size_t>(((id * 0x9e3779b97f4a7c15ull) >> 32) * count >> 32);
  }
  // The place that has it, or else the free one where it would go. There are places, and free ones.
  size_t PlaceOf(SessionId id) const {
    size_t place = HomeOf(id, entries_.size());
    while (!entries_[place].free() && entries_[place].id != id) place = Next(place);
    return place;
  }
  size_t Next(size_t place) const { return place + 1 == entries_.size() ? 0 : place + 1; }
  // Steps from one to the other, round the end.
  size_t Steps(size_t from, size_t to) const {
    return to >= from ? to - from : to + entries_.size() - from;
  }
  // Moves all to an array that suits so many sessions, at least those that there are.
  void MakeRoom(size_t count);

  std::vector<Entry> entries_;  // places; none where there is no session
  size_t size_ = 0;
};

// A push to a synchronous table that is in the log and waits for its step's commit.
struct StagedPush {
  Lsn lsn = 0;
  SessionId session = 0;
  uint64_t seq = 0;
  // The push itself, as the shell wrote it (server/staged_rows.h). Only in a stored meta: the core
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

#endif  // HOTBED_SERVER_SESSION_TABLE_H_
