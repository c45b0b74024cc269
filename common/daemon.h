// The first steps of every daemon, before it opens its data directory.
#ifndef HOTBED_COMMON_DAEMON_H_
#define HOTBED_COMMON_DAEMON_H_

namespace hotbed {

// Files are created for the owner alone, those of RocksDB included. Warns if the process runs as
// root. Call after the log is set up and before the first thread.
void BeginDaemon();

}  // namespace hotbed

#endif  // HOTBED_COMMON_DAEMON_H_
