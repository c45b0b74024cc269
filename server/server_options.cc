#include "server/server_options.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "config/config.h"
#include "config/units.h"
#include "server/host/host_budget.h"
#include "server/shard/change_feed.h"

namespace hotbed {
namespace {

constexpr double kMiB = 1 << 20;
// Read buffers of connections, and calls that have no message.
constexpr uint64_t kGrpcBytes = 128ull << 20;

void AddPlaces(ConfigSchema* schema, ServerOptions* o) {
  schema->Add("name", &o->name, "NAME", "Name of this server, unique in its cluster. Required.");
  schema->AddChoice("role", &o->role, {"shards", "serving"},
                    "shards: holds shards of tables, for trainers. serving: holds read copies of "
                    "the tables that 'hotbed serve add' names, for inference; it has no data "
                    "directory, and no shard waits for it.");
  schema->AddCoordinators("coordinator", &o->coordinator,
                          "Where the coordinator listens, or each of several. Required.");
  schema->Add("data-dir", &o->host.data_dir, "DIR",
              "Directory for log, spilled rows and identity; created if missing. With "
              "--role=serving: for copies of tables, which a server goes on with after a restart, "
              "and of which memory need not hold all rows; empty there: memory alone.");
  schema->Add("checkpoint-dir", &o->checkpoint_dir, "DIR",
              "Where checkpoints lie that are saved into server:NAME, in a folder of this server's "
              "name; empty: DATA-DIR/checkpoints, where they take space from log and rows.");
  schema->AddBool("adopt-incomplete", &o->host.adopt_incomplete,
                  "If files of the data directory are missing or damaged, gives up all of its data "
                  "in favour of the replicas on other servers, instead of refusing to start.");
  schema->AddHostPort("listen", &o->listen,
                      "Where the data port listens; port 0 takes any free one.", 0);
  schema->AddHostPort("advertise", &o->advertise,
                      "The data port as clients and other servers reach it; empty: as it listens. "
                      "Where it listens on all addresses (0.0.0.0, [::]): the address from which "
                      "this server reaches the coordinator.",
                      1);
  schema->Add("failure-domain", &o->failure_domain, "NAME",
              "Machine, rack or zone. Two replicas of a shard are never placed in one; two read "
              "copies of a table only if there is no other domain. Empty: the host part of the "
              "data port.");
  schema->AddHostPort("admin-listen", &o->admin_listen,
                      "Where the admin port (HTTP: metrics, health, status) listens.", 0);
  schema->AddHostPort("http-listen", &o->http_listen,
                      "With --role=serving: where lookups by HTTP and JSON are answered "
                      "(docs/serving.md); port 0 takes any free one. Empty: nowhere.",
                      0);
  schema->AddChoice("http-secure", &o->http_secure, {"off", "on", "off-beyond-loopback"},
                    "TLS of the HTTP port. on: with the certificate of the data port (--tls-cert, "
                    "--tls-key); off: none, and it listens on loopback alone; off-beyond-loopback: "
                    "none, anywhere, and rows and tokens can be read on the way.");
  schema->AddHostPort("advertise-admin", &o->advertise_admin,
                      "The admin port as 'hotbed doctor' reaches it from other machines; empty: as "
                      "it listens, and where that is all addresses: the host of the data port.",
                      1);
}

void AddMemory(ConfigSchema* schema, ServerOptions* o) {
  schema->AddBytes("host-bytes", &o->host.host_bytes,
                   "Memory for rows, caches, buffers and messages together.", {.min = 64 * kMiB});
  schema->AddBytes("spill-bytes-max", &o->host.spill_bytes_max,
                   "Disk for spilled rows; 0: no limit. Beyond it pushes are refused.");
  schema->AddBytes("log-bytes-max", &o->host.log_bytes_max,
                   "Disk for the log; dirty rows are written back so that it stays below.",
                   {.min = 16 * kMiB});
  schema->AddMillis("log-sync-interval-ms", &o->host.log_sync_interval_ms,
                    "Longest time that an acknowledged push is only in the operating system's "
                    "memory; 0: it is on disk before it is acknowledged.");
  schema->AddChoice(
      "device", &o->device, {"auto", "host", "cuda", "emulated"},
      "Device whose memory holds the hottest rows: auto takes a GPU if this build and "
      "machine have one, else none; cuda requires a GPU; host uses none; emulated "
      "is a GPU emulated by the processor, for tests. With --role=serving: rows of copies "
      "that bags ask for or that memory has no room for.");
  schema->AddBytes("device-bytes", &o->device_bytes,
                   "Device memory for rows, index and messages, taken at start; 0: nine tenths of "
                   "the free memory.");
  schema->AddInt("threads", &o->threads,
                 "Threads that poll and serve; 0: half of the cores, at least 1.",
                 {.min = 0, .max = 256});
  schema->AddInt("pool-threads", &o->pool_threads,
                 "Threads that continue the work of busy shards; as many again load rows that are "
                 "not in memory, and as many write rows back.",
                 {.min = 1, .max = 256});
  schema->AddBytes("staged-bytes-max", &o->host.staged_bytes_max,
                   "Pushes to synchronous tables that wait for the end of their step; 0: a 32nd of "
                   "--host-bytes.");
  schema->AddBytes("session-bytes-max", &o->host.session_bytes_max,
                   "Memory of the sessions that push here, up to 64 bytes per session and shard; "
                   "beyond it new ones are refused. 0: a 64th of --host-bytes.");
  schema->AddBytes(
      "export-bytes-max", &o->export_bytes_max,
      "Memory beside the rows of what leaves tables, and enters them in files: a third "
      "for lists of rows and for changes, of which those who follow and fall behind "
      "read their rows again; the rest for saves, restores, exports and imports, which "
      "wait for each other. At least 6 MiB; 0: three 64ths of --host-bytes.");
  schema->AddBytes(
      "replica-tail-bytes", &o->host.replica_tail_bytes,
      "Log records kept in memory for other replicas. A new replica that pushes outrun "
      "gets the rows that changed; one that falls behind later gets all rows. 0: a 32nd of "
      "--host-bytes.");
}

void AddLimits(ConfigSchema* schema, ServerOptions* o) {
  schema->AddBytes("message-bytes-max", &o->message_bytes_max,
                   "Largest message, either way; clients cut their batches to it.",
                   {.min = 64 * 1024, .max = 128 * kMiB});
  schema->AddInt("messages-in-flight-max", &o->messages_in_flight_max,
                 "Open requests on one stream before it is no longer read.",
                 {.min = 1, .max = 4096});
  schema->AddBytes("bytes-in-flight-max", &o->bytes_in_flight_max,
                   "Bytes of open requests and answers on one stream before it is no longer read; "
                   "never more than a quarter of the two limits that follow.",
                   {.min = kMiB});
  schema->AddBytes("pull-bytes-in-flight-max", &o->pull_bytes_in_flight_max,
                   "Bytes of answers in flight on this server, a quarter of them for lookups; 0: "
                   "1/16 of host-bytes.");
  schema->AddBytes("push-bytes-in-flight-max", &o->push_bytes_in_flight_max,
                   "Bytes of pushes in flight on this server; a quarter of it more may wait; "
                   "0: 1/16 of host-bytes for both.");
  schema->AddBytes(
      "transfer-bytes-max", &o->transfer_bytes_max,
      "Bytes received from other servers and not yet applied or written: half for logs, "
      "half for snapshot transfers; 0: 1/32 of host-bytes, at least 4 MiB.");
  schema->AddBytes("transfer-queue-bytes-max", &o->transfer_queue_bytes_max,
                   "Bytes that wait to be sent to one other server; messages beyond it are dropped "
                   "and sent again later. Log records in it share the memory of the tail.",
                   {.min = 4 * kMiB});
  schema->AddMillis("write-timeout-ms", &o->write_timeout_ms,
                    "A client that reads nothing of its answers for this long loses its stream.",
                    {.min = 100});
  schema->AddInt("streams-max", &o->streams_max,
                 "Open pull and push streams. Lookups are bounded by --connections-max.",
                 {.min = 1, .max = 1 << 20});
  schema->AddInt("connections-max", &o->connections_max,
                 "Connections open to the data port; beyond it one that is idle makes room, or the "
                 "new one is closed. 0: the limit of open files less 768, at most 8192.",
                 {.min = 0, .max = 100'000});
  schema->AddInt("connections-per-peer-max", &o->connections_per_peer_max,
                 "The same limit for one address. 0: half of connections-max.",
                 {.min = 0, .max = 100'000});
  schema->AddMillis("message-timeout-ms", &o->message_timeout_ms,
                    "A connection is closed if a message on it is not complete this long after its "
                    "first byte.",
                    {.min = 1000});
  schema->AddInt("pull-ids-max", &o->pull_ids_max, "Ids in one segment of a pull.",
                 {.min = 1, .max = 1 << 24});
  schema->AddMillis("slow-request-ms", &o->slow_request_ms,
                    "Pulls, pushes and lookups that take longer are logged, with the time of each "
                    "stage; at most ten lines per second. 0: none.");
  schema->AddMillis(
      "checkpoint-interval-ms", &o->host.checkpoint_interval_ms,
      "Interval between checkpoints of tables of class checkpoint that were pushed to; 0: only "
      "at a clean stop, and after shards of theirs came to the server, were cut or were merged.");
  schema->AddMillis(
      "keep-deletions-ms", &o->host.keep_deletions_ms,
      "How long shards remember deleted rows. A shard that remembers more deletions than it has "
      "rows, and more than 65,536, forgets the older half at once. Streams and incremental saves "
      "that are further behind read all rows.",
      {.min = 100});
  schema->AddMillis(
      "drain-ms-max", &o->drain_ms_max,
      "Longest time for a clean stop after SIGTERM; up to half of it is for other servers to take "
      "over shards of which they hold replicas.",
      {.min = 100});
  schema->AddChoice("log-format", &o->log_format, {"text", "json"}, "Form of the log lines.");
}

constexpr size_t kNameBytesMax = 200;

// As the coordinator takes it.
bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

std::string WhatIsMissing(const ServerOptions& options) {
  if (options.name.empty()) return "--name is required: a name unique in the cluster";
  if (options.coordinator.empty()) return "--coordinator is required: its HOST:PORT";
  if (options.host.data_dir.empty() && options.role == "shards")
    return "--data-dir is required: a directory for log and rows";
  for (const std::string& listen : {options.listen, options.admin_listen, options.coordinator}) {
    if (!absl::StrContains(listen, ':')) return absl::StrCat("'", listen, "' is not HOST:PORT");
  }
  return "";
}

// By how much parts that were given exceed the shares that CarveHostBytes has for them.
uint64_t BytesAboveShares(const ServerOptions& options, std::string* which) {
  const HostBudget shares = CarveHostBytes(options.host.host_bytes);
  uint64_t above = 0;
  const auto add = [&](const char* flags, uint64_t bytes, uint64_t share) {
    if (bytes <= share) return;
    above += std::min(bytes - share, UINT64_MAX - above);
    absl::StrAppend(which, which->empty() ? "" : ", ", flags, " (", FormatBytes(bytes), ")");
  };
  const DataPlaneLimits limits = DataOptionsOf(options).limits;
  const uint64_t pushes = std::min(limits.push_bytes_in_flight_max, UINT64_MAX / 2);
  add("--pull-bytes-in-flight-max", options.pull_bytes_in_flight_max, shares.message_bytes / 2);
  add("--push-bytes-in-flight-max and a quarter more", pushes + pushes / 4,
      shares.message_bytes / 2);
  add("--staged-bytes-max", options.host.staged_bytes_max, shares.staged_bytes);
  add("--session-bytes-max", options.host.session_bytes_max, shares.session_bytes);
  add("--export-bytes-max", options.export_bytes_max, shares.export_bytes);
  add("--replica-tail-bytes", options.host.replica_tail_bytes, shares.replica_tail_bytes);
  add("--transfer-bytes-max", options.transfer_bytes_max, shares.transfer_bytes);
  return above;
}

absl::Status CheckHttp(const ServerOptions& options) {
  if (options.http_listen.empty()) return absl::OkStatus();
  if (options.role != "serving") {
    return absl::InvalidArgumentError(
        absl::StrCat("--http-listen is ", options.http_listen, ", and --role is ", options.role,
                     "; allowed: with --role=serving, as lookups by HTTP read served copies"));
  }
  if (options.http_secure != "on") {
    return CheckPlainHttp(options.http_secure, options.http_listen);
  }
  if (options.security.files.certificate.empty() || options.security.secure.starts_with("off")) {
    return absl::InvalidArgumentError(
        "--http-secure=on needs TLS on the data port, too: --tls-cert, --tls-key and --tls-ca "
        "('hotbed cert create' makes them)");
  }
  return absl::OkStatus();
}

}  // namespace

bool LoadServerOptions(int argc, char** argv, ServerOptions* options, int* exit_code) {
  ConfigSchema schema("hotbed-server", "Holds shards of embedding tables and serves them.");
  AddPlaces(&schema, options);
  AddMemory(&schema, options);
  AddLimits(&schema, options);
  AddSecurityFlags(&schema, &options->security);
  if (!schema.Load(argc, argv, exit_code)) return false;
  const absl::Status checked = CheckServerOptions(*options);
  if (checked.ok()) return true;
  std::fprintf(stderr, "hotbed-server: %s (see hotbed-server --help)\n",
               std::string(checked.message()).c_str());
  *exit_code = 2;
  return false;
}

absl::Status CheckServerOptions(const ServerOptions& options) {
  if (const std::string missing = WhatIsMissing(options); !missing.empty()) {
    return absl::InvalidArgumentError(missing);
  }
  const auto check_name = [](const char* flag, const std::string& name) {
    if (IsName(name)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is \"", absl::CEscape(name.substr(0, 80)), "\" of ", name.size(),
        " bytes; allowed: 1..", kNameBytesMax, " printable characters without spaces"));
  };
  HOTBED_RETURN_IF_ERROR(check_name("--name", options.name));
  if (!options.failure_domain.empty()) {
    HOTBED_RETURN_IF_ERROR(check_name("--failure-domain", options.failure_domain));
  }
  for (const auto& [flag, address] : {std::pair("--advertise", &options.advertise),
                                      std::pair("--advertise-admin", &options.advertise_admin)}) {
    const absl::StatusOr<HostPort> place = SplitHostPort(*address, 1);
    if (place.ok() && IsWildcardHost(place->host)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is ", *address,
                       ", to which nobody can connect; give an address of this machine, or leave "
                       "the flag out"));
    }
  }
  if (options.export_bytes_max > 0 && options.export_bytes_max < 6 * kMiB) {
    return absl::InvalidArgumentError(absl::StrCat("--export-bytes-max is ",
                                                   FormatBytes(options.export_bytes_max),
                                                   "; allowed: 0, or 6 MiB and more"));
  }
  HOTBED_RETURN_IF_ERROR(CheckHttp(options));
  std::string which;
  const uint64_t above = BytesAboveShares(options, &which);
  const uint64_t room = CarveHostBytes(options.host.host_bytes).hot_bytes;
  if (above < room) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("above their shares of --host-bytes (", FormatBytes(options.host.host_bytes),
                   "), by ", FormatBytes(above), " in all: ", which, "; rows have only ",
                   FormatBytes(room), " of it; give less, or raise --host-bytes"));
}

std::string OwnDiskOf(const ServerOptions& options) {
  const std::string path = options.checkpoint_dir.empty()
                               ? absl::StrCat(options.host.data_dir, "/checkpoints")
                               : absl::StrCat(options.checkpoint_dir, "/", options.name);
  return std::filesystem::absolute(path).lexically_normal().string();
}

ShardHostOptions HostOptionsOf(const ServerOptions& options) {
  ShardHostOptions host = options.host;
  std::string which;
  const uint64_t above = BytesAboveShares(options, &which);
  const uint64_t hot_bytes = CarveHostBytes(host.host_bytes).hot_bytes;
  // Parts that were given more than their share get it from the rows.
  if (above > 0) host.hot_bytes = hot_bytes - std::min(above, hot_bytes - 1);
  const uint64_t export_bytes = ExportBytesMax(options);
  host.change_memory = std::make_shared<ChangeMemory>(export_bytes / 3);
  host.copy_bytes_max = export_bytes - export_bytes / 3;
  host.pool_threads = static_cast<int>(options.pool_threads);
  host.pull_ids_max = static_cast<uint32_t>(options.pull_ids_max);
  return host;
}

uint64_t ExportBytesMax(const ServerOptions& options) {
  return options.export_bytes_max > 0 ? options.export_bytes_max
                                      : CarveHostBytes(options.host.host_bytes).export_bytes;
}

DataServerOptions DataOptionsOf(const ServerOptions& options) {
  const uint64_t message_bytes = CarveHostBytes(options.host.host_bytes).message_bytes;
  const uint64_t half = message_bytes / 2;
  DataServerOptions data;
  data.port.name = "data";
  data.port.listen = options.listen;
  data.port.limits = ConnectionLimitsOf(options.connections_max, options.connections_per_peer_max,
                                        RaiseDescriptorLimit());
  data.port.limits.message_timeout_ms = options.message_timeout_ms;
  data.port.limits.unfinished_bytes_max = std::max(message_bytes, 2 * options.message_bytes_max);
  data.threads = static_cast<int>(options.threads);
  data.limits.message_bytes_max = options.message_bytes_max;
  data.limits.messages_in_flight_max = static_cast<uint32_t>(options.messages_in_flight_max);
  data.limits.stream_bytes_in_flight_max = options.bytes_in_flight_max;
  data.limits.pull_bytes_in_flight_max =
      options.pull_bytes_in_flight_max > 0 ? options.pull_bytes_in_flight_max : half;
  data.limits.push_bytes_in_flight_max =
      options.push_bytes_in_flight_max > 0 ? options.push_bytes_in_flight_max : half / 5 * 4;
  data.limits.push_bytes_waiting_max = data.limits.push_bytes_in_flight_max / 4;
  data.peer_limits.transfer_bytes_max =
      options.transfer_bytes_max > 0 ? options.transfer_bytes_max
                                     : CarveHostBytes(options.host.host_bytes).transfer_bytes;
  data.peer_streams.queue_bytes_max = options.transfer_queue_bytes_max;
  data.peer_limits.replica_tail_bytes_max =
      options.host.replica_tail_bytes != 0
          ? options.host.replica_tail_bytes
          : CarveHostBytes(options.host.host_bytes).replica_tail_bytes;
  // gRPC's own memory in normal operation: pushes, and messages that are still arriving.
  data.grpc_bytes_max =
      2 * (data.limits.push_bytes_in_flight_max + data.limits.push_bytes_waiting_max +
           data.port.limits.unfinished_bytes_max) +
      kGrpcBytes;
  data.limits.write_timeout_ms = options.write_timeout_ms;
  data.limits.slow_request_ms = options.slow_request_ms;
  data.limits.streams_max = static_cast<uint32_t>(options.streams_max);
  return data;
}

ServingOptions ServingOptionsOf(const ServerOptions& options) {
  const DataServerOptions data = DataOptionsOf(options);
  ServingOptions serving;
  serving.name = options.name;
  serving.coordinators = options.coordinator;
  serving.port = data.port;
  serving.advertise = options.advertise;
  serving.advertise_admin = options.advertise_admin;
  serving.failure_domain = options.failure_domain;
  serving.admin_listen = options.admin_listen;
  serving.http_listen = options.http_listen;
  serving.http_tls = options.http_secure == "on";
  serving.http_drain_ns_max = options.drain_ms_max / 4 * kMillisecondNs;
  serving.rows_bytes_max = options.host.host_bytes / 16 * 9;
  if (!options.host.data_dir.empty()) {
    serving.disk = absl::StrCat(options.host.data_dir, "/serving-", options.name);
  }
  serving.message_bytes_max = options.message_bytes_max;
  serving.answer_bytes_max = data.limits.pull_bytes_in_flight_max;
  serving.grpc_bytes_max = data.grpc_bytes_max;
  return serving;
}

}  // namespace hotbed
