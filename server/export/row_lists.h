// Lists of the rows of shards, for clients who scan a table or begin to follow it
// (proto/changes.proto): all rows, or those that have changed since a position.
//
// The rows come from the one reader of what leaves a shard (SnapshotSource), block by block as the
// client asks. So a slow client holds up nobody, and a list has no memory between two of its
// calls; the memory of an answer counts against ChangeMemory until the answer has left. A list that
// nobody has read for kUnreadNsMax is dropped. Thread-safe; List does not block.
#ifndef HOTBED_SERVER_EXPORT_ROW_LISTS_H_
#define HOTBED_SERVER_EXPORT_ROW_LISTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/changes.pb.h"
#include "proto/tool_calls.h"
#include "server/export/change_reads.h"
#include "server/export/fair_share.h"
#include "server/host/shard_host.h"
#include "server/shard/shard.h"

namespace hotbed {

constexpr int kListThreads = 2;
constexpr size_t kListsMax = 64;
constexpr int64_t kUnreadNsMax = 30 * kSecondNs;
// A list of one moment pauses the pushes of its shard: at most one in this time.
constexpr int64_t kPauseEveryNs = 2 * kSecondNs;

constexpr size_t kTasksMax = 64;

class RowLists {
 public:
  // All outlive it. `changes` frees the feeds that lists have opened.
  RowLists(ShardHost* host, ChangeReads* changes, const Clock* clock);
  ~RowLists() { Stop(); }

  // ResourceExhausted: too many lists (FairShare), or pauses of the shard. Aborted: the shard has
  // left this server meanwhile, or the list that goes on is not known.
  void List(const v1::ListRowsRequest& request, const std::string& connection, ToolCalls::Done done)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Runs `task` on one of the threads, in its turn. False: the server is stopping, or too much
  // waits.
  bool Run(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls in progress are answered.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Listing {
    ShardId id;
    std::string connection;  // which asked for it
    // Under mu_.
    bool busy = true;  // a call is in progress
    int64_t read_ns = 0;
    // Used by the thread that works on the call.
    std::shared_ptr<Shard> shard;
    std::unique_ptr<ShardRowReader> rows;  // null: not begun
    Epoch epoch = 0;
    ChangePosition base;
  };
  struct Page {
    std::shared_ptr<Listing> listing;
    v1::ListRowsRequest request;
    ToolCalls::Done done;
    std::function<void()> task;  // in place of all others
  };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // False: Stop was called.
  bool AwaitMemory() ABSL_LOCKS_EXCLUDED(mu_);
  void Answer(Page* page) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Begin(const v1::ListRowsRequest& request, Listing* listing,
                     v1::ListRowsReply* reply);
  absl::Status MayPause(ShardId shard) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Read(const v1::ListRowsRequest& request, Listing* listing, v1::ListRowsReply* reply);
  using Lists = std::map<uint64_t, std::shared_ptr<Listing>>;  // by number
  // The next one.
  Lists::iterator Drop(Lists::iterator list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropUnread(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ShardHost* const host_;
  ChangeReads* const changes_;
  ChangeMemory* const memory_;
  const Clock* const clock_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  Lists lists_ ABSL_GUARDED_BY(mu_);
  FairShare share_ ABSL_GUARDED_BY(mu_){kListsMax, "lists of rows"};
  std::deque<Page> pages_ ABSL_GUARDED_BY(mu_);
  std::map<ShardId, int64_t> paused_ns_ ABSL_GUARDED_BY(mu_);  // within kPauseEveryNs
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_ROW_LISTS_H_
