// Follow, for serving servers: they have an identity of their own, and a copy follows another copy
// of the same rows, its feeder, where it can. So the primaries send each change to one copy.
#ifndef HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_
#define HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hotbed/changes.h"
#include "proto/serving.pb.h"
#include "proto/types.pb.h"
#include "security/identity.h"

namespace hotbed {

// Whom a copy follows besides the primaries.
struct CopyFeed {
  v1::CopyName copy;  // of the follower, and so of the feeder
  // The feeder's HOST:PORT; empty: the copy follows the primaries alone. Asked before each call.
  std::function<std::string()> feeder;
};

struct CopyChanges : RowChanges {
  RangePosition at;  // how far the range was told, with these changes
  // Others of the same entry of the log, or of the same list, follow: `at` tells nothing of these.
  bool partial = false;
  bool coded = false;  // the feeder has sent them: `bytes` are the rows, in the copy's format
  std::string bytes;
};

class CopyStream : public ChangeStream {
 public:
  // As Next.
  virtual absl::StatusOr<std::optional<CopyChanges>> NextOfCopy(absl::Duration wait) = 0;
};

// Ids alone, of every column slice.
class IdStream : public CopyStream {
 public:
  // The reader has rows of the shard that are as of `at`, which others read.
  virtual void NoteSeen(uint32_t shard, const v1::LogPlace& at) = 0;
};
absl::StatusOr<std::unique_ptr<IdStream>> FollowIdsAs(const std::string& coordinators,
                                                      const ClientIdentity& identity,
                                                      const v1::TableSpec& table,
                                                      const FollowOptions& options);

// RangePosition::table.
uint64_t NumberOfTable(const std::string& cluster, uint32_t table);

// `coordinators` is HOST:PORT,... NotFound once the table was dropped, also if another one has its
// name by now. A shard that the feeder does not answer for, or that it is late with, is followed at
// its primary, and the feeder is asked again after a pause. Rows of a table with column slices are
// joined (joined_stream.h), from the primaries alone.
absl::StatusOr<std::unique_ptr<CopyStream>> FollowAs(const std::string& coordinators,
                                                     const ClientIdentity& identity,
                                                     const v1::TableSpec& table,
                                                     const FollowOptions& options,
                                                     CopyFeed feed = {});

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_
