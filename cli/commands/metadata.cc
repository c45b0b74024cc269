// hotbed metadata: backups of the coordinator's metadata, and their rebuilding from the servers.
#include <unistd.h>

#include <CLI/App.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/base/interrupt.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr int64_t kLookAgainNs = 100'000'000;

absl::Status Backup(const CommandContext& context, const std::string& path) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::BackupMetadataReply reply, coordinator.BackupMetadata());
  HOTBED_RETURN_IF_ERROR(FileSystem::Real()->WriteAtomically(path, reply.file()));
  const nlohmann::ordered_json json = {{"file", path},
                                       {"bytes", reply.file().size()},
                                       {"cluster", reply.cluster_id()},
                                       {"plan_revision", reply.plan_revision()}};
  return context.Answer(
      json, absl::StrCat("wrote ", path, ": the metadata of cluster ", reply.cluster_id(), ", ",
                         FormatBytes(reply.file().size()), "\n"));
}

struct RebuildFlags {
  bool from_servers = false;
  bool without_missing = false;
  bool dry_run = false;
  bool no_wait = false;
};

nlohmann::ordered_json ReportJson(const RebuildFlags& flags,
                                  const v1::RebuildMetadataReply& reply) {
  nlohmann::ordered_json json = {
      {"cluster", reply.cluster_id()},
      {"generation", reply.generation()},
      {"dry_run", flags.dry_run},
      {"servers", nlohmann::ordered_json::array()},
      {"tables", nlohmann::ordered_json::array()},
      {"servers_missing",
       std::vector<std::string>(reply.servers_missing().begin(), reply.servers_missing().end())},
      {"serving_missing",
       std::vector<std::string>(reply.serving_missing().begin(), reply.serving_missing().end())},
      {"replicas_kept", reply.replicas_kept()}};
  for (const v1::ServerInfo& server : reply.servers()) {
    json["servers"].push_back({{"name", server.name()}, {"address", server.address()}});
  }
  for (const v1::RebuiltTable& table : reply.tables()) {
    json["tables"].push_back({{"table", table.spec().name()},
                              {"id", table.spec().id()},
                              {"shards", table.shards()},
                              {"shards_short_of_replicas", table.shards_short()},
                              {"left_out", table.left_out()},
                              {"committed_step", table.committed_step()},
                              {"shards_of_earlier_step", table.shards_of_earlier_step()}});
  }
  return json;
}

std::string RemarkOf(const v1::RebuiltTable& table) {
  if (!table.left_out().empty()) return absl::StrCat("left out: ", table.left_out());
  std::string remark;
  if (table.shards_short() > 0) {
    absl::StrAppend(&remark, table.shards_short(), " shards short of replicas");
  }
  if (table.shards_of_earlier_step() > 0) {
    absl::StrAppend(&remark, remark.empty() ? "" : "; ", table.shards_of_earlier_step(),
                    " shards without the commit of step ", table.committed_step());
  }
  return remark;
}

std::string ReportText(const RebuildFlags& flags, const v1::RebuildMetadataReply& reply) {
  std::string text =
      absl::StrCat(flags.dry_run ? "would adopt" : "adopted", " cluster ", reply.cluster_id(),
                   ", generation ", reply.generation(), ", with ", reply.servers_size(),
                   reply.servers_size() == 1 ? " server:" : " servers:");
  for (const v1::ServerInfo& server : reply.servers()) absl::StrAppend(&text, " ", server.name());
  TablePrinter tables({"table", "shards", "remark"});
  for (const v1::RebuiltTable& table : reply.tables()) {
    tables.AddRow({table.spec().name(), WithCommas(table.shards()), RemarkOf(table)});
  }
  if (!reply.servers_missing().empty()) {
    absl::StrAppend(&text, "; without ", absl::StrJoin(reply.servers_missing(), " "));
  }
  absl::StrAppend(&text, "\n", tables.ToText());
  if (!reply.serving_missing().empty()) {
    absl::StrAppend(&text, "not heard which tables are served: ",
                    absl::StrJoin(reply.serving_missing(), ", "), "\n");
  }
  if (reply.replicas_kept() > 0) {
    absl::StrAppend(&text, reply.replicas_kept(),
                    " shards have a late replica that may hold more; it is kept until a person "
                    "decides: 'hotbed doctor'\n");
  }
  return text;
}

// Waits until every shard of the adopted tables is served again.
absl::Status Wait(const CommandContext& context, const v1::RebuildMetadataReply& reply,
                  CoordinatorStub* coordinator) {
  std::set<uint32_t> tables;
  uint64_t shards = 0;
  for (const v1::RebuiltTable& table : reply.tables()) {
    if (!table.left_out().empty()) continue;
    tables.insert(table.spec().id());
    shards += table.shards();
  }
  const Clock* const clock = Clock::Real();
  Progress progress(context.err, isatty(STDERR_FILENO) != 0, clock, "serving again", shards);
  const InterruptScope interrupt;
  while (!interrupt.interrupted()) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
    uint64_t active = 0;
    for (const v1::ShardRecord& record : map.shards()) {
      const bool adopted = tables.contains(ShardId::FromPacked(record.shard()).table);
      active += adopted && record.active() ? 1 : 0;
    }
    if (active >= shards) {
      if (!context.json()) progress.Finish(absl::StrCat(shards, " shards"));
      return absl::OkStatus();
    }
    HOTBED_ASSIGN_OR_RETURN(const v1::ListMovesReply moves, coordinator->ListMoves({}));
    const std::string note = moves.doubts().empty() ? "" : moves.doubts(0).text();
    if (!context.json()) progress.Update(active, note);
    clock->SleepNs(kLookAgainNs);
  }
  return absl::CancelledError(
      "interrupted; the metadata are rebuilt. 'hotbed doctor' says which shards are not served "
      "yet");
}

absl::Status Rebuild(const CommandContext& context, const RebuildFlags& flags) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  v1::RebuildMetadataRequest request;
  request.set_dry_run(flags.dry_run);
  request.set_without_missing(flags.without_missing);
  HOTBED_ASSIGN_OR_RETURN(const v1::RebuildMetadataReply reply,
                          coordinator.RebuildMetadata(request));
  if (!flags.dry_run && !flags.no_wait) {
    HOTBED_RETURN_IF_ERROR(Wait(context, reply, &coordinator));
  }
  return context.Answer(ReportJson(flags, reply), ReportText(flags, reply));
}

}  // namespace

void AddMetadataCommands(CLI::App* metadata, CommandContext* context) {
  auto path = std::make_shared<std::string>();
  CLI::App* backup =
      metadata->add_subcommand("backup", "Write a backup of the coordinator's metadata to a file");
  backup->add_option("FILE", *path, "The file; an existing one is replaced")->required();
  context->Runs(backup, [context, path] { return Backup(*context, *path); });

  auto flags = std::make_shared<RebuildFlags>();
  CLI::App* rebuild = metadata->add_subcommand(
      "rebuild", "Let a coordinator that has lost its metadata adopt the servers that ask for it");
  rebuild
      ->add_flag("--from-servers", flags->from_servers,
                 "From what servers hold and remember: the only source there is")
      ->required();
  rebuild->add_flag("--without-missing", flags->without_missing,
                    "Continue although servers are missing: tables with missing shards are left "
                    "out, and the replicas of missing servers are kept there, unused");
  rebuild->add_flag("--dry-run", flags->dry_run, "Print what would be adopted; do nothing");
  rebuild->add_flag("--no-wait", flags->no_wait, "Do not wait until all shards are served again");
  context->Runs(rebuild, [context, flags] { return Rebuild(*context, *flags); });
}

}  // namespace hotbed
