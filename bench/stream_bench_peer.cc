#include "bench/stream_bench_peer.h"

#include <unistd.h>

#include "absl/strings/numbers.h"
#include "bench/bench_host.h"
#include "bench/roofs/peer_process.h"
#include "common/clock.h"
#include "server/data_server.h"

namespace hotbed::bench {
int ServeData(const std::vector<std::string>& args) {
  DataServerOptions options;
  if (args.size() < 3 || !absl::SimpleAtoi(args[2], &options.threads)) return 1;
  BenchHost host(args[0], 2ull << 30);
  TableSpec table;
  table.id = kTable;
  table.name = "bench";
  table.rows = kRows;
  table.dim = kDim;
  table.durability = args[1] == "log" ? Durability::kLog : Durability::kCheckpoint;
  host.Serve({table}, kShards);
  host.Fill(table, kShards, 0.0f);
  auto server = DataServer::Start(options, host.get(), Clock::Real());
  if (!server.ok()) return 1;
  int port = 0;
  const std::string& address = (*server)->address();
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) return 1;
  roofs::TellPort(port);
  for (;;) pause();
}

}  // namespace hotbed::bench
