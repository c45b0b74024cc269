#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/command.h"
#include "common/status_macros.h"
#include "hotbed/client.h"
#include "hotbed/row_life.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

// Policies in place of the table's.
struct ExpireFlags {
  std::string table;
  bool dry_run = false;
  std::optional<uint64_t> ttl_s, ttl_steps, rows_max, bytes_max;
  std::string evict_by;
  std::optional<float> score_show, score_click, score_least;
};

absl::StatusOr<LifeParams> PoliciesOf(const ExpireFlags& flags, LifeParams life) {
  for (const auto& [flag, value] :
       {std::pair(&flags.ttl_s, &life.ttl_s), std::pair(&flags.ttl_steps, &life.ttl_steps),
        std::pair(&flags.rows_max, &life.rows_max), std::pair(&flags.bytes_max, &life.bytes_max)}) {
    if (flag->has_value()) *value = **flag;
  }
  for (const auto& [flag, value] : {std::pair(&flags.score_show, &life.score.show),
                                    std::pair(&flags.score_click, &life.score.click),
                                    std::pair(&flags.score_least, &life.score.least)}) {
    if (flag->has_value()) *value = **flag;
  }
  if (flags.evict_by.empty()) return life;
  const auto found = std::find(kEvictByWords.begin(), kEvictByWords.end(), flags.evict_by);
  if (found == kEvictByWords.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--evict-by is '", flags.evict_by, "'; allowed: ", absl::StrJoin(kEvictByWords, ", ")));
  }
  life.evict_by = static_cast<EvictBy>(found - kEvictByWords.begin());
  return life;
}

absl::Status CountLife(const CommandContext& context, const ExpireFlags& flags) {
  const std::string& name = flags.table;
  ClientOptions options;
  options.deadline = context.timeout_duration();
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                          Client::Connect(absl::StrCat("hotbed://", context.coordinator), options));
  HOTBED_ASSIGN_OR_RETURN(const Table* const table, client->OpenTable(name));
  HOTBED_ASSIGN_OR_RETURN(const LifeParams life, PoliciesOf(flags, LifeOf(table->options())));
  const bool scored = life.evict_by == EvictBy::kScore || life.score.least > 0;
  if (scored && !table->options().optimizer.shows.kept) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", name,
                     " keeps no shows and clicks, and its rows have no score; allowed: lru, lfu "
                     "and norm as --evict-by, and no --score-least"));
  }
  HOTBED_ASSIGN_OR_RETURN(const LifeCount count, CountByLife(client.get(), table, life));
  const nlohmann::ordered_json json = {
      {"table", name}, {"rows", count.rows}, {"expires", count.expires}, {"evicts", count.evicts}};
  return context.Answer(
      json, absl::StrCat(count.rows, " rows; ", count.expires, " would expire now",
                         life.Expires() ? "" : " (without a time to live and a least score)", ", ",
                         count.evicts, " would be evicted",
                         life.Limits() ? "" : " (without a limit)", "\n"));
}

}  // namespace

void AddTableExpireCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<ExpireFlags>();
  CLI::App* app =
      table->add_subcommand("expire",
                            "Count the rows that the table's policies, or those of the flags, "
                            "would take now. The servers "
                            "delete the rows that the table's policies take by themselves");
  app->add_option("TABLE", flags->table, "Name of the table")->required();
  app->add_flag("--dry-run", flags->dry_run, "Delete nothing; required: there is no other way")
      ->required();
  app->add_option("--ttl-s", flags->ttl_s,
                  "In place of the table's; 0: rows do not expire by time");
  app->add_option("--ttl-steps", flags->ttl_steps, "In place of the table's; 0: nor by steps");
  app->add_option("--rows-max", flags->rows_max, "In place of the table's; 0: no limit");
  app->add_option("--bytes-max", flags->bytes_max, "In place of the table's; 0: no limit");
  app->add_option("--evict-by", flags->evict_by,
                  "In place of the table's: lru, lfu, norm or score");
  app->add_option("--score-show", flags->score_show, "In place of the table's weight of a show");
  app->add_option("--score-click", flags->score_click, "In place of the table's weight of a click");
  app->add_option("--score-least", flags->score_least,
                  "In place of the table's; 0: rows do not go by their score");
  context->Runs(app, [context, flags] { return CountLife(*context, *flags); });
}

}  // namespace hotbed
