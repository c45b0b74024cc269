// Which copies this client has had newest rows from, and until when those may have changed: so that
// no later answer of `latest` is older than one before, whichever copy gives it (docs/serving.md,
// "Going back"). Times are of this process. Thread-safe.
//
// An answer has all that was committed up to its `as_of_ns`. Whatever an answer before has shown
// was committed by its `changed_ns`. So an answer is not older than another one if its as_of_ns is
// not before the changed_ns of that one, or if both are of one copy, whose rows never go back.
// Answers that have come since a lookup began do not bind it: as_of_ns at its begin is always
// enough.
#ifndef HOTBED_CLIENT_SERVING_SEEN_COPIES_H_
#define HOTBED_CLIENT_SERVING_SEEN_COPIES_H_

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
  // Notes the answer, to a lookup that has begun at `begin_ns`. False: it is older than one before,
  // and is not to be given to the caller.
  bool Take(uint32_t table, const ServedPart& part, const Answer& answer, int64_t begin_ns)
      ABSL_LOCKS_EXCLUDED(mu_);
  // As of when rows of the part have to be, for a lookup that begins at `begin_ns`, if `server` is
  // to be asked. 0: any will do, such as those of a copy that is known.
  int64_t NeededOf(uint32_t table, const ServedPart& part, const void* server,
                   int64_t begin_ns) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Copy {
    const void* server = nullptr;
    uint32_t life = 0;  // 0: copies of another cut of the table
    int64_t changed_ns = 0;
  };
  using Parts = std::vector<std::vector<Copy>>;

  mutable absl::Mutex mu_;
  absl::flat_hash_map<uint32_t, Parts> tables_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_SERVING_SEEN_COPIES_H_
