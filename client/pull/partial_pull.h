// The end of a call that takes what can be had (PullFeature::missing).
#ifndef HOTBED_CLIENT_PULL_PARTIAL_PULL_H_
#define HOTBED_CLIENT_PULL_PARTIAL_PULL_H_

#include <cstdint>

#include "client/pull/pull_call.h"

namespace hotbed {

// For a partial call whose result is OK or DeadlineExceeded: the result becomes OK, and the rows of
// parts without an answer are zeroed and flagged. Returns their number, with duplicates. Does
// nothing for other results. The call's gate is closed, and no thread is inside.
uint64_t EndPartial(PullCall* call);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PARTIAL_PULL_H_
