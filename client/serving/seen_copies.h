// Which copies this client has had newest rows from, and until when those may have changed: so that
// no later answer of `latest` is older than one before, whichever copy gives it (docs/serving.md,
// "Going back"). Times are of this process. Thread-safe.
//
// An answer has all that was committed up to its `as_of_ns`. Whatever an answer before has shown
// was committed by its `changed_ns`. So an answer is not older than another one if its as_of_ns is
// not before the changed_ns of that one, or if both are of one copy, whose rows never go back.
// Answers that have come since a lookup began do not bind it: as_of_ns at its begin is always
// enough.
//
// Availability comes before order. An answer that may be older can be taken nevertheless. It is the
// new measure from then on: what the part's other copies have shown is forgotten.
#ifndef HOTBED_CLIENT_SERVING_SEEN_COPIES_H_
#define HOTBED_CLIENT_SERVING_SEEN_COPIES_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proto/served_part.h"

namespace hotbed {

class SeenCopies {
 public:
  struct Answer {
    const void* server = nullptr;
    uint32_t life = 0;       // ServingTableReply.life; 0: an earlier release, which is believed
    int64_t as_of_ns = 0;    // the rows have all changes up to then
    int64_t changed_ns = 0;  // and none that are later than this
  };
  // When a lookup has begun, and how many answers had been marked by then.
  struct Begin {
    int64_t ns = 0;
    uint64_t marks = 0;
  };
  Begin BeginAt(int64_t now_ns) const { return {now_ns, marks_.load()}; }
  enum class Verdict {
    kNew,      // it is not older than any before
    kOlder,    // it may be older, and is taken: it is noted, and to be marked. So are answers to
               // lookups that had begun before another one was marked
    kRefused,  // it may be older, and is not to be given to the caller
  };
  // Notes the answer, to a lookup that has begun at `begin`, unless it is refused. One that may be
  // older is taken if the copy is known, or `may_be_older`.
  Verdict Take(uint32_t table, const ServedPart& part, const Answer& answer, const Begin& begin,
               bool may_be_older) ABSL_LOCKS_EXCLUDED(mu_);
  struct Needed {
    int64_t as_of_ns = 0;  // 0: any will do
    bool known = false;    // the server's copy has answered before, and is taken in any case
  };
  // As of when rows of `server` have to be so that they are not older, for a lookup that begins at
  // `begin_ns`.
  Needed NeededOf(uint32_t table, const ServedPart& part, const void* server,
                  int64_t begin_ns) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Copy {
    const void* server = nullptr;
    uint32_t life = 0;  // 0: copies of another cut of the table
    int64_t changed_ns = 0;
    // Other copies are forgotten whose rows, until then, are in its answers since. They bind its
    // answers from before that are late.
    int64_t covers_ns = 0;
  };
  struct Part {
    std::vector<Copy> copies;
    uint64_t mark = 0;  // the number of its last answer that was marked
  };
  using Parts = std::vector<Part>;

  std::atomic<uint64_t> marks_{0};
  mutable absl::Mutex mu_;
  absl::flat_hash_map<uint32_t, Parts> tables_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_SERVING_SEEN_COPIES_H_
