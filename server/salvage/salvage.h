// Reads what can be read of the data directory of a server that does not start: which of its files
// are whole, which rows and log records are there. Changes nothing in it.
#ifndef HOTBED_SERVER_SALVAGE_SALVAGE_H_
#define HOTBED_SERVER_SALVAGE_SALVAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace hotbed {

struct SalvagedFile {
  std::string name;     // in the directory
  std::string trouble;  // empty: it is whole
};

struct SalvagedShard {
  ShardId shard;
  std::string table;
  uint64_t rows = 0;     // written back, each as of its own LSN
  Lsn rows_lsn = 0;      // the highest of these
  uint64_t records = 0;  // in the log, in the order of `first_lsn` to `last_lsn`
  Lsn first_lsn = 0;
  Lsn last_lsn = 0;
  std::string
      trouble;       // why there may be more than was read; empty: nothing is known to be missing
  std::string file;  // the rows that were written out; empty: none were
};

struct SalvageReport {
  ServerId server = 0;
  std::string cluster_id;
  std::vector<SalvagedFile> files;
  std::vector<SalvagedShard> shards;  // of CATALOG
};

// `out` not empty: writes the rows of each shard to the file TABLE-SHARD.jsonl of that folder, one
// JSON object per line: id, lsn, weights, and the optimizer's state in hexadecimal digits.
// NotFound: `dir` is no data directory. AlreadyExists: a server uses it.
absl::StatusOr<SalvageReport> Salvage(const std::string& dir, const std::string& out);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SALVAGE_SALVAGE_H_
