#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/tables/table_flags.h"
#include "cli/tables/find_table.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr int kTriesMax = 10;  // each fails only if another request has altered the table

struct TableAlterFlags {
  std::string name;
  GivenOptions given;
  std::optional<uint64_t> at_step;
  bool dry_run = false;
};

// The first given option that is fixed when a table is created; null: none.
absl::Status RefuseFixed(const TableAlterFlags& flags) {
  for (const auto& [option, text] : flags.given) {
    if (option->fixed_because == nullptr) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--", option->name, ": ", option->field, " of table '", flags.name,
                     "' is fixed since its creation: ", option->fixed_because,
                     "; make a new table with 'hotbed table create'. What may change: "
                     "--learning-rate, --clip-value, --clip-row-norm, the flags of --schedule, "
                     "--memory-share-min and --memory-share-max, and the policies --ttl-s, "
                     "--ttl-steps, --rows-max, --bytes-max, --evict-by, --score-show, "
                     "--score-click and --score-least"));
  }
  if (!flags.given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "nothing to change: give --learning-rate, --clip-value, --clip-row-norm, flags of "
      "--schedule, --memory-share-min, --memory-share-max, or policies such as --ttl-s and "
      "--rows-max");
}

// The schedule in force at `step`, before the change.
Schedule ScheduleAt(const TableSpec& spec, uint64_t step) {
  Schedule schedule = spec.schedule;
  for (const TableChange& change : spec.changes) {
    if (change.at_step <= step && change.has_schedule) schedule = change.schedule;
  }
  return schedule;
}

// Shares of memory and policies of rows change at once. They are noted with the last change, which
// they leave as it is.
bool IsAtOnce(const TableAlterFlags& flags) {
  return std::all_of(flags.given.begin(), flags.given.end(), [](const auto& given) {
    return absl::StartsWith(given.first->name, "memory-share-") ||
           absl::StartsWith(given.first->field, "life.");
  });
}

absl::StatusOr<TableChange> ToChange(const TableAlterFlags& flags, const TableSpec& spec) {
  const uint64_t last = spec.changes.empty() ? 1 : spec.changes.back().at_step;
  TableSpec asked = spec;
  TableChange change;
  change.at_step = flags.at_step.value_or(last);
  asked.schedule = ScheduleAt(spec, change.at_step);
  asked.life = LifeOf(spec);
  for (const auto& [option, text] : flags.given) {
    HOTBED_RETURN_IF_ERROR(SetTableOption(*option, text, &asked));
    TakeChange(*option, asked, &change);
  }
  return change;
}

// A property that is not given stays as it was in the table that was read. The coordinator refuses
// the change if that table has changed since; then it is read again.
absl::StatusOr<v1::AlterTableReply> Ask(const TableAlterFlags& flags, CoordinatorStub* coordinator,
                                        TableChange* change) {
  v1::AlterTableRequest request;
  request.set_name(flags.name);
  request.set_dry_run(flags.dry_run);
  for (int tries = 1;; ++tries) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
    const std::vector<TableSpec> parts = FindParts(map, flags.name);
    TableSpec existing;
    if (!parts.empty()) {
      existing = ComposedOf(parts);
      existing.id = 0;  // the change is of all parts, and of none that was read
    } else {
      HOTBED_ASSIGN_OR_RETURN(existing, FindTable(map, flags.name));
    }
    HOTBED_ASSIGN_OR_RETURN(*change, ToChange(flags, existing));
    *request.mutable_change() = ToProto(*change);
    for (const v1::TableSpec& table : map.tables()) {
      if (table.id() == existing.id) *request.mutable_read() = table;
    }
    absl::StatusOr<v1::AlterTableReply> reply = coordinator->AlterTable(request);
    if (!absl::IsAborted(reply.status()) || tries == kTriesMax) return reply;
  }
}

absl::Status Alter(const CommandContext& context, const TableAlterFlags& flags) {
  HOTBED_RETURN_IF_ERROR(RefuseFixed(flags));
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  TableChange change;
  HOTBED_ASSIGN_OR_RETURN(const v1::AlterTableReply reply, Ask(flags, &coordinator, &change));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(reply.spec()));
  nlohmann::ordered_json json = TableJson(spec);
  json["altered"] = reply.altered();
  json["dry_run"] = flags.dry_run;
  const char* did = flags.dry_run     ? "would alter table '"
                    : reply.altered() ? "altered table '"
                                      : "there already: table '";
  return context.Answer(
      json,
      absl::StrCat(did, spec.name, "', ",
                   IsAtOnce(flags) ? "" : absl::StrCat("from step ", change.at_step, " on "),
                   ChangeText(change), "\n  servers learn it with their next heartbeat",
                   IsAtOnce(flags) ? "\n"
                                   : "; a push of a later step that arrives earlier uses the old "
                                     "options\n"));
}

}  // namespace

void AddTableAlterCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableAlterFlags>();
  CLI::App* app = table->add_subcommand("alter",
                                        "Change a table's learning rate, schedule or clipping, "
                                        "from a training step on, or its shares "
                                        "of memory and the policies of its rows at once");
  app->footer(
      "Flags of --schedule that are not given stay as they are at that step. All other options are "
      "fixed when a table is\ncreated (docs/tables.md, Changing a table).\n\nExamples:\n"
      "  hotbed table alter user --at-step 20000 --learning-rate 0.001\n"
      "  hotbed table alter session --ttl-s 86400 --rows-max 1000000 --evict-by lfu\n"
      "  hotbed table alter session --ttl-s 0            # no row expires by time any more");
  app->add_option("NAME", flags->name, "Name of the table")->required();
  app->add_option("--at-step", flags->at_step,
                  "First step of the change: not before the step of the last change; not needed "
                  "for shares of memory and policies");
  AddTableFlags(app, /*only_changing=*/true, &flags->given);
  app->add_flag("--dry-run", flags->dry_run, "Print what would be done; do nothing");
  app->callback([context, flags] {
    // The refusal of a fixed option says more.
    const bool refused = absl::IsFailedPrecondition(RefuseFixed(*flags));
    if (!flags->at_step.has_value() && !IsAtOnce(*flags) && !refused) {
      throw CLI::RequiredError("--at-step");
    }
    context->run = [context, flags] { return Alter(*context, *flags); };
  });
}

}  // namespace hotbed
