// The settings of hotbed-server: names, defaults and bounds. config/config.h says where values come
// from.
#ifndef HOTBED_SERVER_SERVER_OPTIONS_H_
#define HOTBED_SERVER_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "security/server_security.h"
#include "server/data_server.h"
#include "server/host/shard_host.h"
#include "serving/serving_process.h"

namespace hotbed {

struct ServerOptions {
  ShardHostOptions host;  // those fields that are flags of the same name
  std::string name;
  std::string role = "shards";
  std::string coordinator;
  std::string listen = "127.0.0.1:0";
  std::string advertise;        // empty: as bound
  std::string advertise_admin;  // empty: as bound
  std::string failure_domain;   // empty: the host part of the data port
  std::string admin_listen = "127.0.0.1:0";
  std::string checkpoint_dir;  // empty: the data directory
  std::string http_listen;     // empty: no HTTP port
  std::string http_secure = "off";
  std::string device = "auto";
  std::string log_format = "text";
  uint64_t device_bytes = 0;
  int64_t threads = 0;
  int64_t pool_threads = 2;
  uint64_t message_bytes_max = 16ull << 20;
  int64_t messages_in_flight_max = 64;
  uint64_t bytes_in_flight_max = 64ull << 20;
  uint64_t pull_bytes_in_flight_max = 0;
  uint64_t push_bytes_in_flight_max = 0;
  uint64_t transfer_bytes_max = 0;
  uint64_t export_bytes_max = 0;
  uint64_t transfer_queue_bytes_max = 64ull << 20;
  int64_t write_timeout_ms = 10'000;
  int64_t streams_max = 4096;
  int64_t connections_max = 0;
  int64_t connections_per_peer_max = 0;
  int64_t message_timeout_ms = 60'000;
  int64_t pull_ids_max = 1 << 20;
  int64_t slow_request_ms = 1000;
  int64_t drain_ms_max = 30'000;
  SecurityFlags security;
};

// Reads all sources and checks the values. False: exit with *exit_code; the error was printed.
bool LoadServerOptions(int argc, char** argv, ServerOptions* options, int* exit_code);

// InvalidArgument: values that do not go together, or a name that cannot be one.
absl::Status CheckServerOptions(const ServerOptions& options);

ShardHostOptions HostOptionsOf(const ServerOptions& options);
// Where server:NAME lies on this server's disk.
std::string OwnDiskOf(const ServerOptions& options);
uint64_t ExportBytesMax(const ServerOptions& options);
DataServerOptions DataOptionsOf(const ServerOptions& options);
// With --role=serving: nine sixteenths of the memory are for rows. The rest is for messages and for
// the program itself.
ServingOptions ServingOptionsOf(const ServerOptions& options);
// The part of drain_ms_max that a stop waits for others to take over; the rest is for requests in
// flight and for writing back.
inline int64_t HandOverMs(const ServerOptions& options) { return options.drain_ms_max / 2; }

}  // namespace hotbed

#endif  // HOTBED_SERVER_SERVER_OPTIONS_H_
