#include "cli/commands/serve_versions.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/commands/refuse_usage.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "proto/served_part.h"
#include "security/identity.h"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVersionPollNs = 200 * kMillisecondNs;

// A server's part of a version of a table.
struct VersionCopy {
  std::string table;
  std::string server;
  bool alive = false;
  v1::VersionReport report;
};

// The choice of the model that `version` belongs to.
v1::VersionChoice ChoiceFor(const v1::ServingMap& map, const v1::ServedVersion& version) {
  for (const v1::VersionChoice& choice : map.choices()) {
    if (choice.model() == version.model()) return choice;
  }
  return {};
}

bool IsKept(const v1::ServingMap& map, uint64_t number) {
  return std::find(map.kept().begin(), map.kept().end(), number) != map.kept().end();
}

std::vector<VersionCopy> CopiesOf(const v1::ServingMap& map, const v1::ServedVersion& version) {
  std::vector<VersionCopy> copies;
  for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
    const uint32_t id = map.tables(i).table();
    const auto& in = version.tables();
    if (std::find(in.begin(), in.end(), id) == in.end()) continue;
    for (int s = 0; s < map.tables(i).servers_size(); ++s) {
      const std::string& name = map.tables(i).servers(s);
      VersionCopy& copy = copies.emplace_back();
      copy.table = map.specs(i).name();
      copy.server = name;
      for (const v1::ServingServerInfo& server : map.servers()) {
        if (server.name() != name) continue;
        copy.alive = server.alive();
        for (const v1::ReplicaReport& replica : server.replicas()) {
          if (replica.table() != id || ServedPartOf(replica) != ServedPartAt(map.tables(i), s)) {
            continue;
          }
          for (const v1::VersionReport& report : replica.versions()) {
            if (report.number() == version.number()) copy.report = report;
          }
        }
      }
    }
  }
  return copies;
}

std::string StateOf(const VersionCopy& copy) {
  if (!copy.alive) return "away";
  if (copy.report.held()) return "held";
  if (!copy.report.trouble().empty()) return "waits";
  return copy.report.rows_in_all() == 0
             ? "ordered"
             : absl::StrCat("read ", WithCommas(copy.report.rows_read()), " of ",
                            WithCommas(copy.report.rows_in_all()), " rows");
}

std::string StateOf(const v1::ServingMap& map, const v1::ServedVersion& version) {
  const v1::VersionChoice choice = ChoiceFor(map, version);
  const uint64_t number = version.number();
  std::vector<std::string> words;
  if (number == choice.current()) words.emplace_back("current");
  if (number == choice.target() && choice.pinned()) words.emplace_back("pinned");
  if (number == choice.target() && number != choice.current()) words.emplace_back("to be current");
  if (!words.empty()) return absl::StrJoin(words, ", ");
  return IsKept(map, number) ? "kept" : "in files only";
}

std::vector<std::string> TablesOf(const v1::ServingMap& map, const v1::ServedVersion& version) {
  std::vector<std::string> names;
  for (const uint32_t id : version.tables()) {
    std::string name = absl::StrCat("table number ", id);
    for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
      if (map.tables(i).table() == id) name = map.specs(i).name();
    }
    names.push_back(std::move(name));
  }
  return names;
}

struct ServeVersionFlags {
  std::string name;
  std::string model;
  bool off = false;
  bool dry_run = false;
  bool no_wait = false;
};

absl::Status Choose(v1::ChooseVersionRequest::Action action, const ServeVersionFlags& flags,
                    const CommandContext& context) {
  v1::ChooseVersionRequest request;
  request.set_action(action);
  request.set_name(flags.name);
  request.set_model(flags.model);
  request.set_dry_run(flags.dry_run);
  ServingCalls calls(context.coordinator, IdentityOfEnvironment());
  HOTBED_ASSIGN_OR_RETURN(const v1::ChooseVersionReply reply,
                          calls.Choose(request, context.timeout_duration()));
  const std::string& name = reply.version().name();
  Json json = {{"version", name},
               {"model", reply.version().model()},
               {"number", reply.version().number()},
               {"pinned", reply.choice().pinned()},
               {"dry_run", flags.dry_run}};
  if (action == v1::ChooseVersionRequest::UNPUBLISH) {
    return context.Answer(
        json,
        absl::StrCat("version ", name, flags.dry_run ? " would not be" : " is not",
                     " published any more; its files stay in ", reply.version().folder(), "\n"));
  }
  bool current = reply.choice().current() == reply.version().number();
  if (!current && !flags.dry_run && !flags.no_wait) {
    HOTBED_ASSIGN_OR_RETURN(current, AwaitCurrent(context, reply.version(), &calls));
  }
  json["current"] = current;
  return context.Answer(
      json,
      absl::StrCat("version ", name,
                   flags.dry_run ? " would be current"
                   : current     ? " is current"
                                 : " is to be current, as soon as all servers have it",
                   reply.choice().pinned() ? ", and stays so when newer ones come" : "", "\n"));
}

absl::Status CheckPin(const ServeVersionFlags& flags) {
  if (!flags.off && flags.name.empty()) {
    return absl::InvalidArgumentError("name a version to be pinned, or give --off");
  }
  if (flags.off && !flags.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "VERSION is ", flags.name, ", and --off is given, which pins none: leave out one of them"));
  }
  if (!flags.off && !flags.model.empty()) {
    return absl::InvalidArgumentError(
        "--model goes with --off: a version that is named belongs to one model");
  }
  return absl::OkStatus();
}

}  // namespace

Json VersionsJson(const v1::ServingMap& map) {
  Json versions = Json::array();
  for (const v1::ServedVersion& version : map.versions()) {
    const uint64_t number = version.number();
    const v1::VersionChoice choice = ChoiceFor(map, version);
    Json one = {{"name", version.name()},
                {"model", version.model()},
                {"number", number},
                {"tables", TablesOf(map, version)},
                {"checkpoint", version.folder()},
                {"at_step", version.at_step()},
                {"published_unix_ms", version.published_unix_ms()},
                {"current", number == choice.current()},
                {"target", number == choice.target()},
                {"pinned", number == choice.target() && choice.pinned()},
                {"kept", IsKept(map, number)},
                {"copies", Json::array()}};
    for (const VersionCopy& copy : CopiesOf(map, version)) {
      if (!IsKept(map, number)) break;
      one["copies"].push_back({{"table", copy.table},
                               {"server", copy.server},
                               {"alive", copy.alive},
                               {"held", copy.alive && copy.report.held()},
                               {"rows", copy.report.rows()},
                               {"bytes", copy.report.bytes()},
                               {"rows_read", copy.report.rows_read()},
                               {"rows_in_all", copy.report.rows_in_all()},
                               {"trouble", copy.report.trouble()}});
    }
    versions.push_back(std::move(one));
  }
  return versions;
}

std::string VersionsText(const v1::ServingMap& map) {
  if (map.versions().empty()) return "";
  TablePrinter versions({"version", "model", "state", "tables", "at step", "checkpoint"});
  TablePrinter copies(
      {"version", "table", "server", "copy", "rows that differ", "bytes", "trouble"});
  for (const v1::ServedVersion& version : map.versions()) {
    versions.AddRow({version.name(), version.model(), StateOf(map, version),
                     absl::StrJoin(TablesOf(map, version), ", "),
                     version.at_step() == 0 ? "-" : absl::StrCat(version.at_step()),
                     version.folder()});
    if (!IsKept(map, version.number())) continue;
    for (const VersionCopy& copy : CopiesOf(map, version)) {
      copies.AddRow({version.name(), copy.table, copy.server, StateOf(copy),
                     WithCommas(copy.report.rows()), FormatBytes(copy.report.bytes()),
                     copy.report.trouble()});
    }
  }
  return absl::StrCat("\n", versions.ToText(), "\n", copies.ToText());
}

absl::StatusOr<bool> AwaitCurrent(const CommandContext& context, const v1::ServedVersion& version,
                                  ServingCalls* calls) {
  const InterruptScope interrupt;
  constexpr uint64_t kParts = 10'000;
  std::unique_ptr<Progress> bar;
  if (!context.json()) {
    bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                     absl::StrCat("taking up ", version.name()), kParts);
  }
  for (;;) {
    // A coordinator that is away does not end the wait.
    const auto map = calls->Get(context.timeout_duration());
    const v1::VersionChoice choice = map.ok() ? ChoiceFor(*map, version) : v1::VersionChoice();
    if (map.ok() && choice.current() == version.number()) {
      if (bar != nullptr) bar->Finish();
      return true;
    }
    if (map.ok() && choice.target() != version.number()) return false;
    uint64_t read = 0, in_all = 0, held = 0, alive = 0;
    std::string trouble = map.ok() ? "" : std::string(map.status().message());
    for (const VersionCopy& copy :
         map.ok() ? CopiesOf(*map, version) : std::vector<VersionCopy>()) {
      if (!copy.alive) continue;
      ++alive;
      held += copy.report.held() ? 1 : 0;
      read += copy.report.rows_read();
      in_all += copy.report.rows_in_all();
      if (!copy.report.trouble().empty()) {
        trouble = absl::StrCat(copy.table, " on ", copy.server, ": ", copy.report.trouble());
      }
    }
    if (bar != nullptr) {
      bar->Update(kParts * std::min(read, in_all) / std::max<uint64_t>(in_all, 1),
                  absl::StrCat(held, " of ", alive, " copies have it",
                               trouble.empty() ? "" : absl::StrCat("; ", trouble)));
    }
    interrupt.Sleep(kVersionPollNs, Clock::Real());
    if (!interrupt.interrupted()) continue;
    return absl::CancelledError(
        absl::StrCat("the wait was broken off; the servers go on, and version ", version.name(),
                     " becomes current when all have it", trouble.empty() ? "" : "; ", trouble,
                     " ('hotbed serve status')"));
  }
}

void AddServeVersionCommands(CLI::App* serve, CommandContext* context) {
  const auto add_flags = [](CLI::App* command, ServeVersionFlags* flags, const char* model) {
    command->add_option("--model", flags->model, model);
    command->add_flag("--dry-run", flags->dry_run, "Print what would be; change nothing");
    command->add_flag("--no-wait", flags->no_wait, "Do not wait until the version is current");
  };
  auto pin_flags = std::make_shared<ServeVersionFlags>();
  CLI::App* pin = serve->add_subcommand(
      "pin", "Make a version current, which then stays so when newer ones are published");
  pin->add_option("VERSION", pin_flags->name, "Its name");
  pin->add_flag("--off", pin_flags->off, "Pin none: the newest version is to be current again");
  add_flags(pin, pin_flags.get(),
            "With --off: the model whose newest version is to be current; not needed if only one "
            "model has versions");
  pin->callback([context, pin_flags] {
    RefuseUsage(CheckPin(*pin_flags));
    const auto action =
        pin_flags->off ? v1::ChooseVersionRequest::UNPIN : v1::ChooseVersionRequest::PIN;
    context->run = [=] { return Choose(action, *pin_flags, *context); };
  });
  auto back_flags = std::make_shared<ServeVersionFlags>();
  CLI::App* back = serve->add_subcommand(
      "rollback", "Make the version before the current one current, from its files if need be");
  add_flags(back, back_flags.get(),
            "The model whose current version changes; not needed if only one model has versions");
  context->Runs(back, [context, back_flags] {
    return Choose(v1::ChooseVersionRequest::ROLL_BACK, *back_flags, *context);
  });
  auto end_flags = std::make_shared<ServeVersionFlags>();
  CLI::App* end = serve->add_subcommand(
      "unpublish", "End a version, which must not be the current one; its files stay");
  end->add_option("VERSION", end_flags->name, "Its name")->required();
  end->add_flag("--dry-run", end_flags->dry_run, "Print what would end; change nothing");
  context->Runs(end, [context, end_flags] {
    return Choose(v1::ChooseVersionRequest::UNPUBLISH, *end_flags, *context);
  });
}

}  // namespace hotbed
