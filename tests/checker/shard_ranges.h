// Where the shards of a table begin and end, as the coordinator says. They never change.
#ifndef HOTBED_TESTS_CHECKER_SHARD_RANGES_H_
#define HOTBED_TESTS_CHECKER_SHARD_RANGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/shard_record.h"

namespace hotbed::checker {

// Of the first slice of columns, in order. `coordinator` is HOST:PORT. Waits for it for at most a
// minute. NotFound: no such table.
absl::StatusOr<std::vector<ShardRange>> ReadShardRanges(const std::string& coordinator,
                                                        const std::string& table);

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_SHARD_RANGES_H_
