// The rows of a table as a stream: first all rows that were ever pushed, then those that change.
//
//   auto stream = hotbed::Follow(client.get(), "hotbed://127.0.0.1:7400", "user", {.from = kept});
//   while (true) {
//     auto changes = (*stream)->Next(absl::Seconds(1));  // nothing within a second: empty
//     if (!changes.ok()) break;
//     if (changes->has_value()) Take(**changes);  // then keep (*stream)->Positions()
//   }
//
// Values are as of the change's LSN or later: a row that changes often comes once for several
// changes, always with a newer value than before. Per shard, LSNs never go back, and every change
// comes at least once; with the LSNs, and as a row's value replaces the one before, exactly once.
// A stream that resumes from its last positions misses nothing. Rows are never deleted so far.
// After a crash that lost changes (tables of class checkpoint) the shard's LSN goes back, and all
// of its rows come again.
//
// The servers hold a bounded number of changed ids for a stream; one that falls behind them gets
// all rows of that shard again. No push waits for a stream. Its rows are pulls of its client.
// Thread-compatible.
#ifndef HOTBED_CHANGES_H_
#define HOTBED_CHANGES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hotbed/client.h"

namespace hotbed {

// By the index of the shard; an LSN is of the shard's log.
using ChangePositions = std::map<uint32_t, uint64_t>;

struct FollowOptions {
  // Where to begin: Positions() of an earlier stream. A shard that is not in it begins with all of
  // its rows.
  ChangePositions from;
  bool once = false;      // ends when all rows were listed; `from` is ignored
  bool with_rows = true;  // or else ids alone
  uint64_t first_id = 0;  // rows of other ids are left out
  uint64_t last_id = ~uint64_t{0};
  uint32_t rows_max = 4096;                      // per Next; 1 to 65536
  absl::Duration poll = absl::Milliseconds(20);  // between two looks for changes
  absl::Duration patience = absl::Minutes(1);    // while a shard has no server
};

struct RowChanges {
  uint32_t shard = 0;
  // The changes of the shard up to here are told. 0: more follows before that is said.
  uint64_t lsn = 0;
  std::vector<uint64_t> ids;
  std::vector<float> rows;  // ids.size() x dim
};

class ChangeStream {
 public:
  virtual ~ChangeStream() = default;
  // The next rows; nothing if there were none within `wait`, or if the stream has ended. After an
  // error it may be called again.
  virtual absl::StatusOr<std::optional<RowChanges>> Next(absl::Duration wait) = 0;
  // The positions after the last Next, for FollowOptions::from.
  virtual ChangePositions Positions() const = 0;
  virtual bool ended() const = 0;  // with FollowOptions::once
};

// `client` is connected to the coordinator `target`, and outlives the stream. The servers are asked
// with the identity that the environment names (docs/security.md), the rows with the client's.
absl::StatusOr<std::unique_ptr<ChangeStream>> Follow(Client* client, const std::string& target,
                                                     const std::string& table,
                                                     const FollowOptions& options = {});

}  // namespace hotbed

#endif  // HOTBED_CHANGES_H_
