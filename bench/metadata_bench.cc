// Many tables and shards in the metadata store: how long their creation takes, and how long another
// coordinator needs to take over.
//
//   metadata_bench --metadata=etcd://HOST:PORT,... [--tables=1000] [--shards=100] [--servers=8]
//   metadata_bench --metadata=embedded --data-dir=DIR
//
// Without processes of servers: they are registered, and activate the shards of which they are the
// primary, by requests to the coordinator in this process, which has the real store. Then a second
// coordinator takes the store over, as after the death of the first one; the lease of the election
// comes on top (2.3 s). tests/fault/measure_metadata.py starts three members of etcd for it.
// Bars: creation with activation at most 60 s, take-over with that lease at most 5 s.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "bench/roofs/machine.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/tables/table_spec.h"
#include "planner/coordinator/console/cluster_document.h"
#include "planner/coordinator/metadata/metadata_flags.h"
#include "planner/coordinator/shell/coordinator.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr int64_t kElectionMs = 2300;  // the lease, and how often others look for its end

struct Flags {
  MetadataFlags store;
  int tables = 1000;
  int shards = 100;
  int servers = 8;
  int tables_per_request = 60;
};

CoreOptions OptionsOf(const std::string& token) {
  CoreOptions options;
  options.token = token;
  options.new_cluster_id = "bench";
  options.lease_ttl_ms = 3'600'000;  // nobody sends heartbeats
  return options;
}

template <typename ReplyMessage>
ReplyMessage Ask(Coordinator* coordinator, Request&& request) {
  absl::StatusOr<Reply> reply;
  absl::Notification done;
  coordinator->Submit(std::move(request), [&](absl::StatusOr<Reply> answer) {
    reply = std::move(answer);
    done.Notify();
  });
  done.WaitForNotification();
  HOTBED_CHECK(reply.ok()) << reply.status().ToString();
  return std::get<ReplyMessage>(*std::move(reply));
}

// Prints the time since the last call.
class Stopwatch {
 public:
  double Lap(const char* what) {
    const int64_t now_ns = Clock::Real()->NowNs();
    const double seconds = static_cast<double>(now_ns - std::exchange(since_ns_, now_ns)) / 1e9;
    std::printf("%-46s %8.2f s\n", what, seconds);
    std::fflush(stdout);
    return seconds;
  }

 private:
  int64_t since_ns_ = Clock::Real()->NowNs();
};

void CreateAll(const Flags& flags, Coordinator* coordinator) {
  for (int made = 0; made < flags.tables;) {
    v1::CreateTablesRequest request;
    for (int i = 0; i < flags.tables_per_request && made < flags.tables; ++i, ++made) {
      TableSpec spec;
      spec.name = absl::StrCat("table_", made);
      spec.dim = 64;
      spec.rows = 100'000;
      v1::NewTable& table = *request.add_tables();
      *table.mutable_spec() = ToProto(spec);
      table.set_shards(static_cast<uint32_t>(flags.shards));
    }
    Ask<v1::CreateTablesReply>(coordinator, std::move(request));
  }
}

void ActivateAll(Coordinator* coordinator) {
  const absl::StatusOr<v1::ClusterMap> map = coordinator->Map(0);
  HOTBED_CHECK(map.ok()) << map.status().ToString();
  std::map<uint64_t, v1::ActivateShardsRequest> by_server;
  for (const v1::ShardRecord& record : map->shards()) {
    v1::ActivateShardsRequest& request = by_server[record.primary().server()];
    request.set_server(record.primary().server());
    request.set_incarnation(record.primary().incarnation());
    v1::ShardEpoch& shard = *request.add_shards();
    shard.set_shard(record.shard());
    shard.set_epoch(record.epoch());
  }
  for (auto& [server, request] : by_server) {
    Ask<v1::ActivateShardsReply>(coordinator, std::move(request));
  }
}

void Run(const Flags& flags) {
  auto metadata = OpenMetadata(flags.store, /*plain_allowed=*/true, FileSystem::Real());
  HOTBED_CHECK(metadata.ok()) << metadata.status().ToString();
  auto first = std::make_unique<Coordinator>(OptionsOf("first"), metadata->store(), Clock::Real());
  HOTBED_CHECK(first->Start().ok());
  for (int s = 0; s < flags.servers; ++s) {
    v1::RegisterServerRequest server;
    server.set_name(absl::StrCat("server_", s));
    server.set_address(absl::StrCat("10.0.0.", s + 1, ":7500"));
    server.set_run(static_cast<uint64_t>(s) + 1);
    Ask<v1::RegisterServerReply>(first.get(), std::move(server));
  }
  std::printf("%d tables of %d shards in %s\n", flags.tables, flags.shards,
              metadata->place.c_str());
  Stopwatch watch;
  double creation = 0;
  if (first->Map(0)->tables().empty()) {
    CreateAll(flags, first.get());
    creation += watch.Lap("creation");
    ActivateAll(first.get());
    creation += watch.Lap("activation, all servers");
  }
  Coordinator second(OptionsOf("second"), metadata->store(), Clock::Real());
  HOTBED_CHECK(second.Start().ok());
  double takeover = watch.Lap("another coordinator: until it serves");
  const CoordinatorStatus status = second.Status();
  takeover += watch.Lap("its first map");
  const std::string document = ClusterDocument({.map = status.map,
                                                .moves = status.moves,
                                                .events = status.events,
                                                .served = v1::ServingMap(),
                                                .address = "c:7400",
                                                .serving = true});
  watch.Lap(absl::StrCat("/api/cluster of ", document.size() >> 10, " KiB").c_str());
  std::printf("creation and activation %.1f s (bar 60), take-over %.1f s (bar 5)\n", creation,
              takeover + static_cast<double>(kElectionMs) / 1e3);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("metadata_bench: many tables and shards in the metadata store");
  app.add_option("--metadata", flags.store.metadata, "embedded, or etcd://HOST:PORT,...");
  app.add_option("--data-dir", flags.store.data_dir, "of the embedded store");
  app.add_option("--tables", flags.tables, "Tables");
  app.add_option("--shards", flags.shards, "Shards per table");
  app.add_option("--servers", flags.servers, "Servers that hold them");
  app.add_option("--tables-per-request", flags.tables_per_request, "Tables created together");
  CLI11_PARSE(app, argc, argv);
  const bench::MachineNote note;
  Run(flags);
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
