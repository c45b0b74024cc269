// Gives keys of a vocabulary their numbers (proto/vocabulary.proto), at the primary of its shard.
//
// It reads the rows of the keys and pushes what becomes of them, as the session of the caller. The
// push names the LSN that it was decided at, and the shard takes it only if its log has nothing
// behind that. So no two decisions are made of one state, whichever of them were cut short, and a
// new primary decides from all that the old one acknowledged. The entry of the log has the rows as
// values: replicas, recovery and read copies decide nothing.
#ifndef HOTBED_SERVER_VOCABULARY_NUMBER_ANSWER_H_
#define HOTBED_SERVER_VOCABULARY_NUMBER_ANSWER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/clock.h"
#include "proto/vocabulary.pb.h"
#include "server/host/shard_host.h"

namespace hotbed {

constexpr uint32_t kNumberKeysMax = 1 << 16;  // per call

// So that the metrics are there before the first call.
void RegisterNumberMetrics();

// InvalidArgument names what is wrong. `table`: that of the shard.
absl::Status CheckNumberRequest(const v1::NumberRequest& request, const TableSpec& table);

// On this thread; blocks until the entry is applied, or the deadline. The request was checked. The
// reply has a code of its own.
v1::NumberReply AnswerNumber(ShardHost* host, const v1::NumberRequest& request, const Clock& clock,
                             int64_t deadline_ns);

}  // namespace hotbed

#endif  // HOTBED_SERVER_VOCABULARY_NUMBER_ANSWER_H_
