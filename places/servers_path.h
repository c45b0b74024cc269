// Places on the servers' own disks, as people write them: server:NAME, in which each checkpoint is
// a folder, server:NAME/CHECKPOINT, of which every server has the files that it wrote.
#ifndef HOTBED_PLACES_SERVERS_PATH_H_
#define HOTBED_PLACES_SERVERS_PATH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hotbed {

bool NamesServersDisks(absl::string_view path);
inline constexpr char kNoSeriesOnServersDisks[] =
    "--incremental goes with a directory or s3://BUCKET/PREFIX: in server:NAME the loss of one "
    "disk "
    "would take a whole series. Save there without --incremental";
// InvalidArgument: the path is not server:NAME, with a checkpoint and a file of it or without; or a
// part is not of letters, digits, '-', '_' and '.', or begins with '.', or has more than 128 of
// them.
absl::Status CheckServersPath(absl::string_view path);
// Where the path lies below `root`, a server's directory of checkpoints; never outside of it.
absl::StatusOr<std::string> PathBelow(const std::string& root, absl::string_view path);

}  // namespace hotbed

#endif  // HOTBED_PLACES_SERVERS_PATH_H_
