// The roofs that performance claims are measured against (DESIGN section 10): what this machine
// does, in this run, with the same bytes and none of our work.
//
// Roofs over the network run between two processes: the peer is this very program, started again
// with a hidden first argument. A program that uses them must call ServeIfAsked first thing in
// main. All traffic is on loopback. Functions block for about `seconds`; one at a time.
#ifndef HOTBED_BENCH_ROOFS_ROOFS_H_
#define HOTBED_BENCH_ROOFS_ROOFS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace hotbed::roofs {

// The exit code when this process was started as the peer of a roof: return it from main.
std::optional<int> ServeIfAsked(int argc, char** argv);

// Messages of fixed size back and forth, `in_flight` at a time.
struct MessageLoad {
  uint64_t request_bytes = 4096;
  uint64_t reply_bytes = 128 << 10;
  int in_flight = 8;
  double seconds = 1.0;
  int server_threads = 0;  // gRPC; 0: half of the cores, at least 1
};

struct MessageRate {
  double messages_per_s = 0;
  double bytes_per_s = 0;  // of requests and replies together
};

// One gRPC stream of generic ByteBuffer messages, with the data plane's channel settings, that does
// nothing with them.
absl::StatusOr<MessageRate> GrpcStream(const MessageLoad& load);

// The same bytes over one blocking TCP connection, one thread a side.
absl::StatusOr<MessageRate> TcpLoop(const MessageLoad& load);

// A table of rows in memory on 2 MiB pages, read at uniformly random places.
struct GatherLoad {
  uint64_t rows = 1'000'000;
  uint64_t row_bytes = 256;
  uint64_t batch = 512;  // rows a message
  double seconds = 1.0;
};

// The blocking TCP loop whose server copies `batch` rows, named by the ids in the request, into
// each reply, with prefetch.
absl::StatusOr<MessageRate> TcpGather(const GatherLoad& gather, int in_flight);

// The gather alone, in one thread, with prefetch: rows/s.
absl::StatusOr<double> GatherRows(const GatherLoad& load);

// Row-wise Adagrad on rows of 64 floats, in one thread, with prefetch: rows/s. `row_bytes` is 256.
absl::StatusOr<double> UpdateRows(const GatherLoad& load);

// A new file in `dir`, which is deleted, of as much as half of `seconds` allows, at most 1 GiB.
struct DiskRate {
  double bytes_per_s = 0;     // written, synced and read again, over the time of all of it
  double random_read_ns = 0;  // 4 KiB at a random place, one at a time, page cache dropped before
};
absl::StatusOr<DiskRate> WriteAndRead(const std::string& dir, double seconds);

// memcpy between buffers larger than the caches: bytes copied a second.
absl::StatusOr<double> Memcpy(double seconds);

// write() of records of `record_bytes` to one new file in `dir`, which is deleted. `synced`: with
// one fdatasync at the end, which belongs to the time, as a log that is synced each second pays for
// it; otherwise what the page cache takes. Records/s.
absl::StatusOr<double> Appends(const std::string& dir, uint64_t record_bytes, double seconds,
                               bool synced);

// Unary calls of generic ByteBuffer messages in an open loop at `rate` calls/s; latency counts from
// the time at which a call was due.
struct UnaryLatency {
  double rate = 0;  // reached
  double p50_s = 0;
  double p99_s = 0;
};
absl::StatusOr<UnaryLatency> GrpcUnary(const MessageLoad& load, double rate);
// The highest rate of such calls with `load.in_flight` open at once.
absl::StatusOr<double> GrpcUnaryRateMax(const MessageLoad& load);

}  // namespace hotbed::roofs

#endif  // HOTBED_BENCH_ROOFS_ROOFS_H_
