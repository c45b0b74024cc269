#include <CLI/App.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/find_server.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/table_text.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr int64_t kRetirePollNs = 200'000'000;

struct RetireFlags {
  std::string server;
  std::string wait = "60s";
  bool drain = false;
};

// What keeps a server from stopping.
struct Hold {
  uint64_t shards = 0;   // that must change before
  std::string why;       // of the first of them
  uint64_t handed = 0;   // shards that others serve meanwhile
  uint64_t waiting = 0;  // shards that have no other replica: they wait until it is back
};

// A draining server has to be empty.
Hold HoldOfDrain(const v1::ServerInfo& server, const v1::ClusterMap& map) {
  Hold hold;
  for (const v1::ShardRecord& record : map.shards()) {
    if (!StoresShard(record, server.server())) continue;
    if (hold.shards++ == 0) {
      hold.why = absl::StrCat(ShardName(map, record.shard()), " has not left it yet");
    }
  }
  return hold;
}

// A server may stop as soon as each shard that it holds with others has all its members: then the
// others serve the shard.
Hold HoldOfHandOver(const v1::ServerInfo& server, const v1::ClusterMap& map) {
  const ReplicaView view(map);
  Hold hold;
  for (const v1::ShardRecord& record : map.shards()) {
    if (!StoresShard(record, server.server())) continue;
    const uint64_t wanted = view.Wanted(record);
    if (wanted < 2) {
      hold.waiting += record.primary().server() == server.server() ? 1 : 0;
      continue;
    }
    uint64_t live = 0;
    for (const ShardReplica& replica : view.ReplicasOf(record)) {
      live += replica.live && replica.role != ReplicaRole::kLearner ? 1 : 0;
    }
    if (record.active() && live >= wanted) {
      ++hold.handed;
    } else if (hold.shards++ == 0) {
      hold.why = absl::StrCat(ShardName(map, record.shard()), " has ", live, " of ", wanted,
                              " replicas", record.active() ? "" : " and is not active");
    }
  }
  return hold;
}

absl::StatusOr<v1::ServerInfo> Look(const RetireFlags& flags, CoordinatorStub* coordinator,
                                    Hold* hold) {
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(v1::ServerInfo server, FindServer(map, flags.server));
  *hold = server.draining() ? HoldOfDrain(server, map) : HoldOfHandOver(server, map);
  return server;
}

std::string DoneText(const v1::ServerInfo& server, const Hold& hold, double seconds) {
  std::string text =
      absl::StrCat(server.name(), " may be stopped, after ", ShortSeconds(seconds), ": ");
  if (server.draining()) return absl::StrCat(text, "it holds nothing any more\n");
  absl::StrAppend(&text, hold.handed, " shards go on with their other replicas");
  if (hold.waiting > 0) {
    absl::StrAppend(&text, ", and ", hold.waiting, " have none and wait until it is back");
  }
  return text + "\n";
}

absl::Status StartDrain(const RetireFlags& flags, CoordinatorStub* coordinator) {
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServerInfo server, FindServer(map, flags.server));
  v1::DrainServerRequest request;
  request.set_server(absl::StrCat(server.server()));
  return coordinator->DrainServer(request).status();
}

absl::Status Retire(const RetireFlags& flags, const CommandContext& context) {
  HOTBED_ASSIGN_OR_RETURN(const int64_t wait_ms, ParseMillis(flags.wait));
  const Clock* const clock = Clock::Real();
  const int64_t start_ns = clock->NowNs();
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  if (flags.drain) HOTBED_RETURN_IF_ERROR(StartDrain(flags, &coordinator));
  while (true) {
    Hold hold;
    const absl::StatusOr<v1::ServerInfo> server = Look(flags, &coordinator, &hold);
    const double seconds = static_cast<double>(clock->NowNs() - start_ns) * 1e-9;
    if (server.ok() && hold.shards == 0) {
      return context.Answer({{"server", server->name()},
                             {"drained", server->draining()},
                             {"shards_handed_over", hold.handed},
                             {"shards_waiting", hold.waiting},
                             {"seconds", seconds}},
                            DoneText(*server, hold, seconds));
    }
    const bool passing = server.ok() || absl::IsUnavailable(server.status()) ||
                         absl::IsDeadlineExceeded(server.status());
    if (!passing) return server.status();
    if (seconds * 1e3 >= static_cast<double>(wait_ms)) {
      if (!server.ok()) return server.status();
      return absl::FailedPreconditionError(
          absl::StrCat(server->name(), " holds ", hold.shards,
                       " shards that would miss it: ", hold.why, ", after ", ShortSeconds(seconds),
                       "; 'hotbed doctor' says what is wrong, --wait takes longer"));
    }
    clock->SleepNs(kRetirePollNs);
  }
}

}  // namespace

void AddServerRetireCommand(CLI::App* server, CommandContext* context) {
  auto flags = std::make_shared<RetireFlags>();
  CLI::App* app = server->add_subcommand("retire",
                                         "Wait until a server may be stopped: others hold all "
                                         "replicas of its replicated shards, or, if "
                                         "it is being drained, it is empty");
  app->add_option("SERVER", flags->server, "Its name, as 'hotbed status' shows it")
      ->required()
      ->envname("HOTBED_NAME");
  app->add_flag("--drain", flags->drain, "Drain it first, for good: as 'hotbed shard drain' does");
  app->add_option("--wait", flags->wait, "Longest wait; 0s: look once")
      ->check(
          [](const std::string& text) { return std::string(ParseMillis(text).status().message()); })
      ->capture_default_str();
  context->Runs(app, [context, flags] { return Retire(*flags, *context); });
}

}  // namespace hotbed
