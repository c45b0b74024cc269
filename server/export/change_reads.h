// Answers clients that follow tables with the changes of shards (proto/changes.proto).
//
// A call waits until one of its shards has a change above the position that the client names, or
// until its time is over; a commit wakes it. The ids come from the shards' feeds (ChangeFeed), the
// values from the rows as they are then. A client that falls behind what the feeds hold is told so,
// and lists the rows again (row_lists.h). Pushes never wait for a reader. Thread-safe.
#ifndef HOTBED_SERVER_EXPORT_CHANGE_READS_H_
#define HOTBED_SERVER_EXPORT_CHANGE_READS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "proto/changes.pb.h"
#include "proto/tool_calls.h"
#include "row_math/position.h"
#include "server/export/fair_share.h"
#include "server/host/shard_host.h"
#include "server/shard/change_feed.h"
#include "server/shard/shard.h"

namespace hotbed {

constexpr int kFollowedShardsMax = 512;  // of a call
constexpr size_t kChangeCallsMax = 256;  // that wait
constexpr uint32_t kChangeBytesMax = 256u << 10;
constexpr uint64_t kChangeAnswerCopies = 4;  // rows, reply, message, and gRPC's copy of it
constexpr uint32_t kChangeWaitMsMax = 10'000;

// Ids, rows and deletions that were sent to those who list rows or follow their changes.
struct FollowCounters {
  static FollowCounters& Get();
  Counter lists{"hotbed_server_followed_bytes_total",
                "Bytes of rows sent to clients that list tables or follow their changes.",
                {{"call", "list"}}};
  Counter changes{"hotbed_server_followed_bytes_total",
                  "Bytes of rows sent to clients that list tables or follow their changes.",
                  {{"call", "changes"}}};
  Counter rows{"hotbed_server_followed_bytes_total",
               "Bytes of rows sent to clients that list tables or follow their changes.",
               {{"call", "rows"}}};
};

ReadPosition PositionOf(const v1::ReadPlace& place);
v1::ReadPlace ToWire(const ReadPosition& position);
// Which rows a request of these names asks for, by place.
struct WantedPlaces {
  uint64_t first = 0;
  uint64_t limit = 0;  // 0: all
  bool hashed = false;

  template <typename Request>
  static WantedPlaces Of(const Request& request, bool hashed) {
    return {request.first_place(), request.limit_place(), hashed};
  }
  bool Include(uint64_t position) const {
    if (limit == 0) return true;
    const uint64_t place = hashed ? BucketOf(position) : position;
    return place >= first && place < limit;
  }
  bool IncludeId(uint64_t id) const { return Include(hashed ? Mix64(id) : id); }
};
// The shard, if its primary is here and active and its range is this one; else null.
std::shared_ptr<Shard> FindFollowed(const ShardHost& host, ShardId id, uint64_t range_first,
                                    uint64_t range_limit);

class ChangeReads {
 public:
  // `host` and `clock` outlive it; the host's shards have the same memory.
  ChangeReads(const ShardHost* host, std::shared_ptr<ChangeMemory> memory, const Clock* clock);
  ~ChangeReads() { Stop(); }

  // InvalidArgument: no shards, too many, or one twice. ResourceExhausted: too many calls wait
  // (FairShare).
  // Does not block.
  void Read(const v1::ReadChangesRequest& request, const std::string& connection,
            ToolCalls::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Frees the shard's feed when nobody reads it any more.
  void Watch(std::shared_ptr<Shard> shard) ABSL_LOCKS_EXCLUDED(mu_);
  ChangeMemory* memory() { return memory_.get(); }
  // Calls in progress are answered.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    v1::ReadChangesRequest request;
    std::string connection;
    ToolCalls::Done done;
    int64_t until_ns = 0;
  };
  // The rows of one shard, on their way into an answer.
  struct Part;

  // OK: the call waits, and has taken `done`.
  absl::Status Admit(const v1::ReadChangesRequest& request, const std::string& connection,
                     ToolCalls::Done* done) ABSL_LOCKS_EXCLUDED(mu_);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // True: it is answered.
  bool Answer(Waiting* call, int64_t now_ns, bool stops);
  bool MayLackPushes(const v1::ReadChangesRequest& request) const;
  // Collects the changes from the feeds, and notes shards that moved or lost a position.
  std::vector<std::unique_ptr<Part>> Gather(const v1::ReadChangesRequest& request, int64_t now_ns,
                                            v1::ReadChangesReply* reply) const;
  static void ReadRows(std::vector<std::unique_ptr<Part>>* parts, v1::ReadChangesReply* reply);
  void Sweep(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);

  const ShardHost* const host_;
  const std::shared_ptr<ChangeMemory> memory_;
  const Clock* const clock_;
  int64_t swept_ns_ = 0;  // the thread's
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Waiting> arrived_ ABSL_GUARDED_BY(mu_);
  FairShare share_ ABSL_GUARDED_BY(mu_){kChangeCallsMax, "waiting calls for changes"};
  std::map<ShardId, std::weak_ptr<Shard>> fed_ ABSL_GUARDED_BY(mu_);  // with open feeds
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_CHANGE_READS_H_
