// Builds the message that asks one server for some parts of a pull. Thread-safe.
#ifndef HOTBED_CLIENT_PULL_PULL_MESSAGE_H_
#define HOTBED_CLIENT_PULL_PULL_MESSAGE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "client/map/cluster_map.h"
#include "client/net/transport.h"
#include "client/pull/pull_call.h"

namespace hotbed {

// `parts` are of one server by `map`, which knows the shard of each. `left_ns` is the time until
// the deadline. `may_join`: the message may travel together with those of other calls. The message
// refers to the call's buffers. The caller is inside the call's gate.
OutgoingMessage BuildPullMessage(const PullCall& call, absl::Span<const uint32_t> parts,
                                 const ClusterMap& map, int64_t left_ns, bool may_join);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_MESSAGE_H_
