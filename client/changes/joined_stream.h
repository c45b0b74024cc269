// The whole rows of a table with column slices as one stream, for served copies.
//
// Each range of rows has a shard per slice, with a log and a list of changes of its own. The stream
// follows the ids of all of them, in turns: it takes what they tell, then asks all slices of a
// range for the rows of the ids that any of them has told, and joins what it gets. So an id that
// has changed in several slices is asked for once. A row that all slices have is told whole. One
// that a slice has not, or no more, is told as deleted: a reader has a row whole or not at all.
//
// No change and no delete is lost, because every join reads each slice at or behind the place from
// which on that slice tells its changes. Whatever changes in a slice after it was read is then told
// by that slice, and the id is joined again. The first slice begins with a list of its rows, and
// its place is that of its list. So the others are asked for their places before, and ids that they
// tell until the first page of that list has come are dropped: if they exist, the list has them. If
// they were joined at once, a row that the first slice deletes between the join and the beginning
// of its list would be told by nobody, and would stay.
//
// Slices are never cut or merged. If one of them has lost changes, all rows of its range come
// again. Positions() and Age() are those of the last turn whose rows were all told.
#ifndef HOTBED_CLIENT_CHANGES_JOINED_STREAM_H_
#define HOTBED_CLIENT_CHANGES_JOINED_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/changes/follow_as.h"
#include "common/clock.h"
#include "hotbed/changes.h"
#include "proto/changes.pb.h"
#include "proto/types.pb.h"
#include "security/identity.h"

namespace hotbed {

// A shard of a table with column slices.
struct SliceShard {
  uint32_t shard = 0;
  ChangedRange range;
};

// Where the slices of a table are.
class SlicedTable {
 public:
  struct Wanted {
    SliceShard from;
    std::vector<uint64_t> ids;  // none: the place alone is asked for
  };
  struct Found {
    bool answered = false;  // else its primary is not reached: it is to be asked again
    v1::LogPlace at;        // the rows are as of here
    std::string found;      // a byte per id: 1 if the row exists
    std::vector<float> rows;
  };

  virtual ~SlicedTable() = default;
  // All shards whose rows are wanted.
  virtual absl::StatusOr<std::vector<SliceShard>> Shards() = 0;
  // As in RangePosition; after Shards.
  virtual uint64_t number() const = 0;
  // What changes in every slice since `from`, as ids. A shard that is not in it begins with a list.
  virtual absl::StatusOr<std::unique_ptr<IdStream>> FollowIds(const ChangePositions& from) = 0;
  // From all shards at the same time; an answer per shard. An error is for good.
  virtual absl::StatusOr<std::vector<Found>> Read(absl::Span<const Wanted> wanted) = 0;
  // An answer was from before what was told: its server is no primary any more.
  virtual void LookAgain() = 0;
};

// `from` as FollowOptions has it. `clock` outlives it.
std::unique_ptr<CopyStream> JoinSlices(std::unique_ptr<SlicedTable> table, uint32_t dim,
                                       const ChangePositions& from, const Clock* clock);

// By the coordinator and the primaries. `options` as FollowAs takes them.
std::unique_ptr<SlicedTable> ReachSlicedTable(const std::string& coordinators,
                                              const ClientIdentity& identity,
                                              const v1::TableSpec& table,
                                              const FollowOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHANGES_JOINED_STREAM_H_
