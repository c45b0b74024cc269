// Whole tables as arrays of other programs: NumPy's .npy and .safetensors (docs/arrays.md). These
// are the calls behind 'hotbed table export' and 'hotbed table import'.
//
//   auto exported = hotbed::ExportTable("hotbed://127.0.0.1:7400", "user",
//                                       {.weights = "/shared/user.npy"});
//
// Servers write and read the arrays themselves, each the rows of its shards, so they reach them
// under the same path as the caller. A call that was broken off, also by a kill, goes on where it
// was when it is made again. The calls block. Thread-safe.
#ifndef HOTBED_ARRAYS_H_
#define HOTBED_ARRAYS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hotbed/table_options.h"

namespace hotbed {

class Client;

// Bytes; `all` is an estimate. Stages follow each other.
using OnArrayBytes = std::function<void(const char* stage, uint64_t done, uint64_t all)>;

struct ExportOptions {
  // Absolute paths in one directory, of files that do not exist. A .safetensors file may be named
  // several times.
  std::string weights;
  std::string ids;    // of a hashed table; empty: in `weights`, if that is a .safetensors file
  std::string state;  // the optimizer's; empty: left out
  uint64_t bytes_per_s = 0;  // of each server; 0: no limit
  // How long a shard may stay without a server that has it.
  absl::Duration patience = absl::Minutes(1);
  OnArrayBytes progress;
  std::function<bool()> stop;  // asked several times per second: true breaks the call off
};

struct ImportOptions {
  std::string weights;  // absolute path
  std::string tensor;   // in a .safetensors file; empty: "weight", or the only one that can be
  std::string ids;
  std::string state;
  absl::Duration patience = absl::Minutes(1);  // without progress
  OnArrayBytes progress;
  std::function<bool()> stop;
};

struct TableArraysDone {
  uint64_t rows = 0;
  uint32_t dim = 0;
  uint64_t bytes = 0;    // of the arrays
  bool resumed = false;  // an earlier call had begun
};

// After an error there are no arrays, but the folder `weights`.export, from which the next call
// with the same names goes on.
absl::StatusOr<TableArraysDone> ExportTable(const std::string& target, const std::string& table,
                                            const ExportOptions& options);
// The same in a client's cluster, which may be the local engine.
absl::StatusOr<TableArraysDone> ExportTable(Client* client, const std::string& table,
                                            const ExportOptions& options);

// Creates the table; its dim, and the rows of a bounded one, are those of the array if 0. Returns
// when all shards serve. Arrays that do not fit are refused before anything is written.
absl::StatusOr<TableArraysDone> ImportTable(const std::string& target, const TableOptions& table,
                                            const ImportOptions& options);
absl::StatusOr<TableArraysDone> ImportTable(Client* client, const TableOptions& table,
                                            const ImportOptions& options);

}  // namespace hotbed

#endif  // HOTBED_ARRAYS_H_
