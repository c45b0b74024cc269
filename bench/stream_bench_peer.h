// The server of stream_bench: a data server over a real shard host in a temporary directory, with
// one table of resident rows, in a process of its own.
#ifndef HOTBED_BENCH_STREAM_BENCH_PEER_H_
#define HOTBED_BENCH_STREAM_BENCH_PEER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hotbed::bench {

inline constexpr char kDataServerPeer[] = "data-server";
inline constexpr uint32_t kShards = 8;
inline constexpr uint64_t kRows = 1'000'000;
inline constexpr uint32_t kDim = 64;
inline constexpr uint64_t kRowsPerShard = kRows / kShards;
inline constexpr uint32_t kTable = 1;
inline constexpr uint64_t kEpoch = 1;

// args: directory, "log" or "checkpoint", threads. Serves until it is killed.
int ServeData(const std::vector<std::string>& args);

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_STREAM_BENCH_PEER_H_
