#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/serving/serving_hold.h"
#include "cli/shards/find_server.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/table_text.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "leader/serving_calls.h"
#include "nlohmann/json.hpp"
#include "security/identity.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr int64_t kRetirePollNs = 200'000'000;

struct RetireFlags {
  std::string server;
  std::string wait = "60s";
  std::string wait_min = "0s";
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

// A server as it is now, and whether it may be stopped.
struct Look {
  std::string name;
  bool holds = false;  // it must not be stopped yet
  std::string why;
  std::string done;  // if it may be
  nlohmann::ordered_json json;
};

Look LookAtShards(const v1::ServerInfo& server, const v1::ClusterMap& map) {
  const Hold hold = server.draining() ? HoldOfDrain(server, map) : HoldOfHandOver(server, map);
  Look look = {.name = server.name(), .holds = hold.shards > 0};
  look.why = absl::StrCat(hold.shards, " shards that would miss it: ", hold.why);
  look.json = {{"server", server.name()},
               {"drained", server.draining()},
               {"shards_handed_over", hold.handed},
               {"shards_waiting", hold.waiting}};
  look.done = server.draining()
                  ? std::string("it holds nothing any more")
                  : absl::StrCat(hold.handed, " shards go on with their other replicas");
  if (!server.draining() && hold.waiting > 0) {
    absl::StrAppend(&look.done, ", and ", hold.waiting, " have none and wait until it is back");
  }
  return look;
}

Look LookAtCopies(const std::string& name, const ServingHold& hold) {
  Look look = {.name = name, .holds = hold.missed > 0};
  look.why = absl::StrCat(hold.missed, " copies that lookups would miss: ", hold.why);
  look.json = {{"server", name},
               {"copies_answered_elsewhere", hold.answered},
               {"copies_alone", hold.alone},
               {"copies_coming", hold.coming}};
  look.done = absl::StrCat("other copies answer for ", hold.answered, " of its tables");
  if (hold.alone > 0) {
    absl::StrAppend(&look.done, ", and ", hold.alone,
                    " have no other copy and are not answered until it is back");
  }
  if (hold.coming > 0) {
    absl::StrAppend(&look.done, "; it loads ", hold.coming,
                    hold.coming == 1 ? " part that is" : " parts that are",
                    " to follow, which come later then");
  }
  return look;
}

// A server of shards, or else a serving server.
absl::StatusOr<Look> LookAt(const RetireFlags& flags, const CommandContext& context,
                            CoordinatorStub* coordinator) {
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
  const absl::StatusOr<v1::ServerInfo> server = FindServer(map, flags.server);
  if (server.ok()) return LookAtShards(*server, map);
  ServingCalls calls(context.coordinator, IdentityOfEnvironment());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap serving, calls.Get(context.timeout_duration()));
  const std::optional<ServingHold> hold = HoldOfServing(flags.server, serving);
  if (!hold.has_value()) return server.status();
  if (flags.drain) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.server,
                     " is a serving server, and --drain moves shards: stop it, and after "
                     "--refill-wait-ms others with room get its copies"));
  }
  return LookAtCopies(flags.server, *hold);
}

absl::Status StartDrain(const RetireFlags& flags, const CommandContext& context,
                        CoordinatorStub* coordinator) {
  HOTBED_RETURN_IF_ERROR(LookAt(flags, context, coordinator).status());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServerInfo server, FindServer(map, flags.server));
  v1::DrainServerRequest request;
  request.set_server(absl::StrCat(server.server()));
  return coordinator->DrainServer(request).status();
}

absl::Status Retire(const RetireFlags& flags, const CommandContext& context) {
  HOTBED_ASSIGN_OR_RETURN(const int64_t wait_ms, ParseMillis(flags.wait));
  HOTBED_ASSIGN_OR_RETURN(const int64_t wait_ms_min, ParseMillis(flags.wait_min));
  const Clock* const clock = Clock::Real();
  const int64_t start_ns = clock->NowNs();
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  if (flags.drain) HOTBED_RETURN_IF_ERROR(StartDrain(flags, context, &coordinator));
  while (true) {
    absl::StatusOr<Look> look = LookAt(flags, context, &coordinator);
    const double seconds = static_cast<double>(clock->NowNs() - start_ns) * 1e-9;
    const bool waits_min = seconds * 1e3 < static_cast<double>(wait_ms_min);
    if (look.ok() && !look->holds && !waits_min) {
      look->json["seconds"] = seconds;
      return context.Answer(
          look->json, absl::StrCat(look->name, " may be stopped, after ", ShortSeconds(seconds),
                                   ": ", look->done, "\n"));
    }
    // A server without copies, of which a new coordinator has not heard yet, is not found.
    const bool passing = look.ok() || absl::IsUnavailable(look.status()) ||
                         absl::IsDeadlineExceeded(look.status()) ||
                         (waits_min && absl::IsNotFound(look.status()));
    if (!passing) return look.status();
    if (seconds * 1e3 >= static_cast<double>(wait_ms) && !waits_min) {
      if (!look.ok()) return look.status();
      return absl::FailedPreconditionError(
          absl::StrCat(look->name, " holds ", look->why, ", after ", ShortSeconds(seconds),
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
                                         "replicas of its replicated shards, or, if it is being "
                                         "drained, it is empty. A serving server: other copies "
                                         "of its tables answer lookups");
  app->add_option("SERVER", flags->server, "Its name, as 'hotbed status' shows it")
      ->required()
      ->envname("HOTBED_NAME");
  app->add_flag("--drain", flags->drain, "Drain it first, for good: as 'hotbed shard drain' does");
  app->add_option("--wait", flags->wait, "Longest wait; 0s: look once")
      ->check(
          [](const std::string& text) { return std::string(ParseMillis(text).status().message()); })
      ->capture_default_str();
  app->add_option("--wait-min", flags->wait_min,
                  "Shortest wait, in which load balancers stop to send lookups to it")
      ->check(
          [](const std::string& text) { return std::string(ParseMillis(text).status().message()); })
      ->capture_default_str();
  context->Runs(app, [context, flags] { return Retire(*flags, *context); });
}

}  // namespace hotbed
