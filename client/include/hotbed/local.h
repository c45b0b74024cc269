// The local engine: tables, optimizers, log, spill tier and checkpoints inside this process,
// without a server and without a port.
//
//   auto client = hotbed::ConnectLocal("/data/embeddings");   // or Client::Connect("local:DIR")
//   auto scratch = hotbed::ConnectLocal("");                  // in memory, gone with its client
//
// A directory belongs to one process at a time. Clients of the same directory in one process share
// one engine, which closes with the last of them. What is acknowledged survives a kill -9 by the
// rules of each table's durability class (docs/durability.md); closing the last client writes all
// rows back and keeps a checkpoint of the tables of class `checkpoint`.
//
// Link hotbed::client_local.
#ifndef HOTBED_LOCAL_H_
#define HOTBED_LOCAL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hotbed/client.h"

namespace hotbed {

// As the flags of hotbed-server of the same names. The first client of a directory decides.
struct LocalOptions {
  uint64_t host_bytes = 0;       // memory of the engine, at least 64 MiB; 0: half of the machine's
  uint64_t spill_bytes_max = 0;  // of rows on disk; 0: no limit
  int64_t log_sync_interval_ms = 1000;       // 0: fdatasync before every acknowledgement
  int64_t checkpoint_interval_ms = 300'000;  // 0: a checkpoint when the engine closes
};

// `directory` empty: everything is in memory (/dev/shm, else the folder for temporary files), and
// is deleted when the client closes. AlreadyExists names the process that uses the directory;
// DataLoss, FailedPrecondition: the directory holds something else, or is damaged; InvalidArgument
// names an option that is out of range, its value and the range.
absl::StatusOr<std::unique_ptr<Client>> ConnectLocal(const std::string& directory,
                                                     const LocalOptions& local = {},
                                                     const ClientOptions& options = {});

}  // namespace hotbed

#endif  // HOTBED_LOCAL_H_
