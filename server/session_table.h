// Who pushes to one shard and how far each got: the table behind exactly-once (reliability page,
// section 3.6).
//
// A function of the log: each entry of a shard's log changes it in one way, so replay, truncation,
// snapshots and moves give the same table. Thread-compatible; owned by the shard's core.
#ifndef HOTBED_SERVER_SESSION_TABLE_H_
#define HOTBED_SERVER_SESSION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
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

class SessionTable {
 public:
  // Null when the session never opened here, or was forgotten. Valid until the next change.
  const Session* Find(SessionId id) const {
    auto it = sessions_.find(id);
    return it == sessions_.end() ? nullptr : &it->second;
  }
  void Set(SessionId id, const Session& session) { sessions_[id] = session; }
  void Erase(SessionId id) { sessions_.erase(id); }
  // Of a session that is there.
  void SetHeard(SessionId id, int64_t heard_ns) { sessions_.at(id).heard_ns = heard_ns; }
  // visit(SessionId, const Session&), in any order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [id, session] : sessions_) visit(id, session);
  }
  size_t size() const { return sessions_.size(); }
  friend bool operator==(const SessionTable& a, const SessionTable& b) {
    return a.sessions_ == b.sessions_;
  }

  // Little-endian: u32 count, then {session, incarnation, last_seq} u64 each, ascending by session.
  void AppendTo(std::string* out) const;
  // Takes a table off the front of `in`. DataLoss when the bytes are no table.
  static absl::StatusOr<SessionTable> TakeFrom(ByteReader* in);

 private:
  absl::flat_hash_map<SessionId, Session> sessions_;
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
