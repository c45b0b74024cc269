// Lists the ids of shards, whose primaries are here, and tells what has changed since
// (proto/changes.proto): for 'hotbed table scan', and for clients that follow a table.
//
// A list comes from a copy of the shard (server/host/shard_copy.h), so it is of one LSN, and waits
// for its reader: at most kListQueuedIdsMax ids are held for each. kListsMax shards are listed at a
// time, the others wait in order. A list that nobody reads for kUnreadNsMax ends. Thread-safe;
// calls do not block.
#ifndef HOTBED_SERVER_EXPORT_ROW_LISTS_H_
#define HOTBED_SERVER_EXPORT_ROW_LISTS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/changes.pb.h"
#include "server/host/shard_host.h"

namespace hotbed {

constexpr int kListsMax = 2;
constexpr size_t kListsWaitingMax = 4096;
constexpr size_t kListQueuedIdsMax = 1u << 17;  // 1 MiB
constexpr int64_t kUnreadNsMax = 30 * kSecondNs;

class RowLists {
 public:
  RowLists(ShardHost* host, const Clock* clock);  // both outlive it
  ~RowLists() { Stop(); }

  // Begins the list if there is none of that number. ResourceExhausted: too many lists.
  absl::StatusOr<v1::ListRowsReply> List(const v1::ListRowsRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::ReadChangesReply> ReadChanges(const v1::ReadChangesRequest& request);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Listing {
    ShardId shard;
    // Under mu_.
    bool begun = false;
    bool ended = false;
    bool dropped = false;
    absl::Status error;
    Epoch epoch = 0;
    Lsn lsn = 0;
    std::vector<uint64_t> ids;
    int64_t read_ns = 0;
  };
  class Sink;

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  Listing* FirstWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropUnread(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ShardHost* const host_;
  const Clock* const clock_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint64_t, std::shared_ptr<Listing>> lists_ ABSL_GUARDED_BY(mu_);  // by number
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_ROW_LISTS_H_
