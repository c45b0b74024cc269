// The part of a push that needs no order and no lock: checks a step whole, removes duplicates, sums
// gradients into message buffers (DECISIONS S2, S3).
#ifndef HOTBED_CLIENT_PUSH_PUSH_PREPARE_H_
#define HOTBED_CLIENT_PUSH_PUSH_PREPARE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/net/client_context.h"
#include "client/push/push_call.h"

namespace hotbed {

// Fills `call->parts`, ordered by server. Thread-safe. On an error nothing may be sent; it names
// table, id and limit. `call` has its step and gradient type.
absl::Status PreparePush(ClientContext* context, absl::Span<const PushFeature> features,
                         const PushOptions& options, PushCall* call);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_PREPARE_H_
