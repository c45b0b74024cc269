// The part of a push that needs neither order nor lock: checks a whole step before anything of it
// is sent, removes duplicate ids, and sums their gradients into message buffers.
#ifndef HOTBED_CLIENT_PUSH_PUSH_PREPARE_H_
#define HOTBED_CLIENT_PUSH_PUSH_PREPARE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "client/map/cluster_map.h"
#include "client/push/push_call.h"
#include "hotbed/client.h"

namespace hotbed {

// Fills `call->parts`, ordered by server; `call` has its step and gradient type, `trainers` is that
// of ClientOptions. Adds to `zeroed`
// the ids that bounds mode `zero` drops. On an error nothing may be sent; it names table, id and
// limit. Thread-safe.
absl::Status PreparePush(absl::Span<const PushFeature> features, const PushOptions& options,
                         const PlanInput& input, uint32_t trainers, PushCall* call,
                         uint64_t* zeroed);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_PREPARE_H_
