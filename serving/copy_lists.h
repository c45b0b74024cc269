// Lists the rows of copies for other serving servers whose copies begin (ListCopy of
// proto/serving.proto): page by page, a shard's rows as they are in memory at that moment. What
// changes meanwhile the follower gets as changes, from the place on where the list began.
//
// A copy of which memory has not all rows is not listed. A list that nobody has read for
// kUnreadListNsMax is dropped. Thread-safe.
#ifndef HOTBED_SERVING_COPY_LISTS_H_
#define HOTBED_SERVING_COPY_LISTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/serving.pb.h"
#include "serving/table_replica.h"

namespace hotbed {

constexpr size_t kCopyListsMax = 64;
constexpr int64_t kUnreadListNsMax = 30 * kSecondNs;
constexpr uint64_t kListPageBytes = 256u << 10;

class CopyLists {
 public:
  explicit CopyLists(const Clock* clock) : clock_(*clock) {}

  // The next page; begins a list of a number that is new. `copy` null: there is none yet.
  // Aborted: the list that goes on is not known. ResourceExhausted: there are too many.
  absl::Status Read(std::shared_ptr<const TableReplica> copy, const v1::ListRowsRequest& request,
                    v1::ListCopyReply* reply) ABSL_LOCKS_EXCLUDED(mu_);
  void DropUnread() ABSL_LOCKS_EXCLUDED(mu_);
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct List {
    std::shared_ptr<const TableReplica> copy;
    std::shared_ptr<const ServedRows> rows;
    CopyRelay::Known known;  // where it began
    uint64_t first = 0;      // of the shard
    uint64_t limit = 0;
    uint64_t next = 0;          // bounded: the next id; hashed: the next stripe
    std::vector<uint64_t> ids;  // of the last stripe, those that are still to be told
    int64_t read_ns = 0;
    bool busy = true;
  };
  using Lists = std::map<uint64_t, std::shared_ptr<List>>;  // by number

  absl::Status Find(const std::shared_ptr<const TableReplica>& copy,
                    const v1::ListRowsRequest& request, std::shared_ptr<List>* list,
                    v1::ListCopyReply* reply) ABSL_LOCKS_EXCLUDED(mu_);
  static bool ReadPage(List* list, v1::ListRowsReply* page);

  const Clock& clock_;
  absl::Mutex mu_;
  Lists lists_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_COPY_LISTS_H_
