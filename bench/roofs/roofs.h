// The roofs that performance claims are measured against: the rate of this machine, in the same
// run, for the same bytes and without our work.
//
// Roofs over the network run between two processes; the peer is the same program, started with a
// hidden first argument. A program that uses them must call ServeIfAsked first in main. All traffic
// is on loopback. Functions block for about `seconds`; call one at a time.
#ifndef HOTBED_BENCH_ROOFS_ROOFS_H_
#define HOTBED_BENCH_ROOFS_ROOFS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace hotbed::roofs {

// Serves, and returns the exit code for main, if this process was started as the peer of a roof.
std::optional<int> ServeIfAsked(int argc, char** argv);

// Requests and replies of fixed size, `in_flight` at a time.
struct MessageLoad {
  uint64_t request_bytes = 4096;
  uint64_t reply_bytes = 128 << 10;
  int in_flight = 8;
  double seconds = 1.0;
};

struct MessageRate {
  double messages_per_s = 0;
  double bytes_per_s = 0;  // of requests and replies together
};

// One gRPC stream of generic ByteBuffer messages with the data plane's channel settings; nothing
// reads their content.
absl::StatusOr<MessageRate> GrpcStream(const MessageLoad& load);

// The same bytes over one blocking TCP connection, with one thread per side.
absl::StatusOr<MessageRate> TcpLoop(const MessageLoad& load);

// A table of rows in memory on 2 MiB pages, read at uniformly random positions.
struct GatherLoad {
  uint64_t rows = 1'000'000;
  uint64_t row_bytes = 256;
  uint64_t batch = 512;  // rows per message
  double seconds = 1.0;
};

// The blocking TCP loop whose server copies `batch` rows, named by the ids in the request, into
// each reply, with prefetch.
absl::StatusOr<MessageRate> TcpGather(const GatherLoad& gather, int in_flight);

// Only the gather, in one thread, with prefetch: rows/s.
absl::StatusOr<double> GatherRows(const GatherLoad& load);

// Row-wise Adagrad on rows of 64 floats, in one thread, with prefetch: rows/s. `row_bytes` is 256.
absl::StatusOr<double> UpdateRows(const GatherLoad& load);

// Writes and reads a new file in `dir` and deletes it. The file is as large as half of `seconds`
// allows, at most 1 GiB.
struct DiskRate {
  double bytes_per_s = 0;     // written, synced and read again, over the whole time
  double random_read_ns = 0;  // of 4 KiB at a random offset, one at a time, with a cold page cache
};
absl::StatusOr<DiskRate> WriteAndRead(const std::string& dir, double seconds);

// memcpy between buffers larger than the caches: bytes copied per second.
absl::StatusOr<double> Memcpy(double seconds);

// write() of records of `record_bytes` to one new file in `dir`, which is deleted: records/s.
// `synced`: the time includes one fdatasync at the end, as for a log that is synced every second;
// otherwise the records only reach the page cache.
absl::StatusOr<double> Appends(const std::string& dir, uint64_t record_bytes, double seconds,
                               bool synced);

// The same bytes by `in_flight` threads with O_DIRECT into one file whose space is set aside first:
// records/s. Writes are whole pages: records begin and end at the page before their place.
// Unimplemented: the file system refuses direct writes.
absl::StatusOr<double> DirectAppends(const std::string& dir, uint64_t record_bytes, int in_flight,
                                     double seconds);

// Unary calls of generic ByteBuffer messages, `in_flight` at a time.
absl::StatusOr<MessageRate> GrpcUnary(const MessageLoad& load);

// The same in an open loop at `rate` calls/s: the 99th percentile of their latencies in seconds,
// which count from the time at which a call was scheduled.
absl::StatusOr<double> GrpcUnaryP99(const MessageLoad& load, double rate);

}  // namespace hotbed::roofs

#endif  // HOTBED_BENCH_ROOFS_ROOFS_H_
