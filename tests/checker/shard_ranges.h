// The position ranges of the shards of a table, from the coordinator. They never change.
#ifndef HOTBED_TESTS_CHECKER_SHARD_RANGES_H_
#define HOTBED_TESTS_CHECKER_SHARD_RANGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tables/shard_record.h"

namespace hotbed::checker {

// The ranges of the first column slice, in order. `coordinator` is HOST:PORT; waits for it for at
// most a minute. NotFound: there is no such table.
absl::StatusOr<std::vector<ShardRange>> ReadShardRanges(const std::string& coordinator,
                                                        const std::string& table);

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_SHARD_RANGES_H_
