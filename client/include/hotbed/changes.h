// The rows of a table as a stream: first all rows that were ever pushed, then those that change
// (docs/changes.md).
//
//   auto stream = hotbed::Follow("hotbed://127.0.0.1:7400", "user", {.from = kept});
//   while (true) {
//     auto changes = (*stream)->Next(absl::Seconds(1));  // nothing within a second: empty
//     if (!changes.ok()) break;
//     if (changes->has_value()) Take(**changes);  // then keep (*stream)->Positions()
//   }
//
// Per shard, changes come in the order of the log, as values: a row that changes often comes once
// for several changes, always as of the told position or later. Every change comes at least once.
// As a row replaces the one before, a reader that keeps rows and Positions() together has each
// change exactly once; a deleted row comes as its id. Moves, fail-overs, splits and restarts of
// servers lose nothing.
//
// Servers hold the ids of changed rows in bounded memory; a stream that falls behind it reads the
// rows of that shard that have changed since. No push waits for a stream. Where a shard has lost
// changes that the stream has told (a crash, with durability class checkpoint), RowChanges::again
// says so, and all rows of the shard come again. Thread-compatible.
#ifndef HOTBED_CHANGES_H_
#define HOTBED_CHANGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hotbed {

// A part of a table: rows [first, limit), or buckets of a hashed table, and columns.
struct ChangedRange {
  uint64_t first = 0;
  uint64_t limit = 0;
  uint32_t column_first = 0;
  uint32_t column_limit = 0;
  friend bool operator==(const ChangedRange&, const ChangedRange&) = default;
};

// How far a part was read. An LSN is of a shard's log; its epoch tells whether the shard still goes
// on from there.
struct RangePosition {
  // Names the table in its cluster: one that was created again has another number.
  uint64_t table = 0;
  ChangedRange range;
  uint64_t epoch = 0;
  uint64_t lsn = 0;  // all changes up to here were told
  uint64_t seen_epoch = 0;
  uint64_t seen_lsn = 0;  // no row that was told is later
  friend bool operator==(const RangePosition&, const RangePosition&) = default;
};
using ChangePositions = std::vector<RangePosition>;

struct FollowOptions {
  // Where to begin: Positions() of an earlier stream. A part that is not in it begins with all of
  // its rows. Positions of another table, which had this name before, come as RowChanges::again.
  ChangePositions from;
  bool once = false;      // a scan: ends when all rows were listed; `from` is ignored
  bool with_rows = true;  // or else ids alone
  // Also RowChanges::statistics, and candidates for admission listed beside the rows. For a scan of
  // a table with touches.
  bool with_statistics = false;
  uint64_t first_id = 0;  // rows of other ids are left out
  uint64_t last_id = ~uint64_t{0};
  // Likewise by ids, or by buckets of a hashed table, as ChangedRange counts.
  uint64_t first_place = 0;
  uint64_t limit_place = ~uint64_t{0};
  absl::Duration patience = absl::Minutes(1);  // while a shard has no server
};

struct ListedTouches {
  bool candidate = false;  // the row waits for further touches, and is not trained yet
  uint32_t touches = 0;    // pushes that have named it
  uint32_t time_s = 0;     // of the last one, since 1970, by the primary's clock; 0: none
  uint64_t step = 0;       // of the last one
};

struct RowChanges {
  uint32_t shard = 0;  // its index; 0 for a range of a table that had the name before
  ChangedRange range;
  // All rows of the range come again: forget those that were told.
  bool again = false;
  // The changes of the range are told up to here. With `once`: the rows are as of it.
  uint64_t lsn = 0;
  std::vector<uint64_t> ids;
  std::vector<float> rows;                // per id, the columns of the range
  std::vector<ListedTouches> statistics;  // per id, with FollowOptions::with_statistics
  // Rows that do not exist any more (Client::Delete); in none of `ids`. An id may come that the
  // reader has not been told of.
  std::vector<uint64_t> deleted;
};

class ChangeStream {
 public:
  virtual ~ChangeStream() = default;
  // The next rows; nothing if there were none within `wait`, or if the stream has ended. After an
  // error it may be called again.
  virtual absl::StatusOr<std::optional<RowChanges>> Next(absl::Duration wait) = 0;
  // The positions after the last Next, for FollowOptions::from.
  virtual ChangePositions Positions() const = 0;
  // All changes that were acknowledged longer ago than this were told. Infinite until all rows of
  // every part were told once. Grows while a server cannot be reached, or cannot be sure that it
  // is the primary still, or has more changes than fit into an answer.
  virtual absl::Duration Age() const = 0;
  virtual bool ended() const = 0;  // with FollowOptions::once
};

// The cluster is reached with the identity that the environment names (docs/security.md).
absl::StatusOr<std::unique_ptr<ChangeStream>> Follow(const std::string& target,
                                                     const std::string& table,
                                                     const FollowOptions& options = {});

}  // namespace hotbed

#endif  // HOTBED_CHANGES_H_
