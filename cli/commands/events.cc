#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>

#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/base/interrupt.h"
#include "cli/shards/event_text.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint32_t kKeptMax = 4096;  // events that the coordinator keeps
constexpr int64_t kPollNs = 500'000'000;

struct EventsFlags {
  uint64_t after = 0;
  int limit = 50;
  bool follow = false;
};

absl::StatusOr<v1::ListEventsReply> After(uint64_t number, CoordinatorStub* coordinator) {
  v1::ListEventsRequest request;
  request.set_after(number);
  request.set_limit(kKeptMax);
  return coordinator->ListEvents(request);
}

void PrintLine(const v1::ClusterEvent& event, const CommandContext& context) {
  *context.out << (context.json() ? EventJson(event).dump() : EventLine(event)) << "\n";
}

// Ends by Ctrl-C. Waits for a coordinator that is away.
absl::Status Follow(uint64_t last, CoordinatorStub* coordinator, const CommandContext& context) {
  const InterruptScope interrupt;
  const Clock* const clock = Clock::Real();
  bool away = false;
  while (!interrupt.interrupted()) {
    const absl::StatusOr<v1::ListEventsReply> reply = After(last, coordinator);
    const bool gone =
        absl::IsUnavailable(reply.status()) || absl::IsDeadlineExceeded(reply.status());
    if (!reply.ok() && !gone) return reply.status();
    if (gone && !away) *context.err << "hotbed: " << reply.status().message() << std::endl;
    away = gone;
    if (reply.ok()) {
      for (const v1::ClusterEvent& event : reply->events()) {
        PrintLine(event, context);
        last = std::max(last, event.number());
      }
      context.out->flush();
    }
    interrupt.Sleep(kPollNs, clock);
  }
  return absl::OkStatus();
}

absl::Status Show(const EventsFlags& flags, const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ListEventsReply reply, After(flags.after, &coordinator));
  const int first = std::max(0, reply.events_size() - flags.limit);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  uint64_t last = flags.after;
  for (int i = 0; i < reply.events_size(); ++i) {
    const v1::ClusterEvent& event = reply.events(i);
    last = std::max(last, event.number());
    if (i < first) continue;
    if (context.json() && !flags.follow) {
      json.push_back(EventJson(event));
    } else {
      PrintLine(event, context);
    }
  }
  context.out->flush();
  if (flags.follow) return Follow(last, &coordinator, context);
  if (context.json()) *context.out << json.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddEventsCommand(CLI::App* root, CommandContext* context) {
  auto flags = std::make_shared<EventsFlags>();
  CLI::App* app = root->add_subcommand(
      "events", "Actions of the coordinator and their reasons; the last 4,096");
  app->add_flag("--follow", flags->follow,
                "Also print new events until Ctrl-C; with JSON, one per line");
  app->add_option("--after", flags->after, "Only events with higher numbers");
  app->add_option("--limit", flags->limit, "Print this many of the last events")
      ->check(CLI::Range(1, static_cast<int>(kKeptMax)))
      ->capture_default_str();
  context->Runs(app, [context, flags] { return Show(*flags, *context); });
}

}  // namespace hotbed
