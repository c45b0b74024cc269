#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/base/command.h"
#include "cli/base/interrupt.h"
#include "cli/base/row_id.h"
#include "cli/commands/confirm.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "hotbed/changes.h"
#include "hotbed/client.h"
#include "terminal/progress.h"

namespace hotbed {
namespace {

constexpr size_t kBatchFloats = 1 << 20;  // rows are looked at in batches of so many elements
constexpr size_t kBatchRowsMax = 8192;
constexpr absl::Duration kDeleteWait = absl::Milliseconds(200);

struct RowDeleteFlags {
  std::string table;
  std::vector<std::string> ids;
  std::string ids_file;
  std::string range;
  std::string where;
  ConfirmFlags confirm;
};

// norm<X or norm>X, of a row's weights.
struct NormCondition {
  bool below = false;
  double limit = 0;

  bool Takes(const float* row, uint32_t dim) const {
    double sum = 0;
    for (uint32_t i = 0; i < dim; ++i) sum += double{row[i]} * double{row[i]};
    return below ? std::sqrt(sum) < limit : std::sqrt(sum) > limit;
  }
};

absl::StatusOr<std::optional<NormCondition>> ParseWhere(const std::string& text) {
  if (text.empty()) return std::optional<NormCondition>();
  const std::string plain = absl::StrReplaceAll(text, {{" ", ""}});
  absl::string_view rest = plain;
  NormCondition condition;
  if (absl::ConsumePrefix(&rest, "norm") && !rest.empty() && (rest[0] == '<' || rest[0] == '>')) {
    condition.below = rest[0] == '<';
    if (absl::SimpleAtod(rest.substr(1), &condition.limit) && std::isfinite(condition.limit)) {
      return std::optional<NormCondition>(condition);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--where is '", text, "'; allowed: 'norm<X' and 'norm>X' with a number X"));
}

absl::StatusOr<std::pair<uint64_t, uint64_t>> ParseRange(const std::string& text) {
  const std::vector<std::string> ends = absl::StrSplit(text, ':');
  if (ends.size() == 2) {
    HOTBED_ASSIGN_OR_RETURN(const uint64_t first, ParseId(ends[0]));
    HOTBED_ASSIGN_OR_RETURN(const uint64_t limit, ParseId(ends[1]));
    if (first < limit) return std::pair(first, limit);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--range is '", text, "'; allowed: A:B for the ids from A to B - 1, A below B"));
}

absl::StatusOr<std::vector<uint64_t>> IdsOf(const RowDeleteFlags& flags) {
  std::vector<uint64_t> ids;
  for (const std::string& text : flags.ids) {
    HOTBED_ASSIGN_OR_RETURN(const uint64_t id, ParseId(text));
    ids.push_back(id);
  }
  if (flags.ids_file.empty()) return ids;
  HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(flags.ids_file));
  size_t line = 0;
  for (const absl::string_view part : absl::StrSplit(text, '\n')) {
    ++line;
    const absl::string_view word = absl::StripAsciiWhitespace(part);
    if (word.empty()) continue;
    const absl::StatusOr<uint64_t> id = ParseId(std::string(word));
    if (!id.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flags.ids_file, ", line ", line, ": ", id.status().message()));
    }
    ids.push_back(*id);
  }
  return ids;
}

// Looks at rows in batches, and deletes those that are there and meet the condition.
class RowDeleter {
 public:
  RowDeleter(Client* client, const Table* table, const RowDeleteFlags& flags,
             std::optional<NormCondition> where)
      : client_(*client), table_(*table), dry_run_(flags.confirm.dry_run), where_(where) {}

  absl::Status Take(absl::Span<const uint64_t> ids) {
    const size_t batch =
        std::clamp<size_t>(kBatchFloats / std::max<uint32_t>(table_.dim(), 1), 1, kBatchRowsMax);
    for (size_t first = 0; first < ids.size(); first += batch) {
      HOTBED_RETURN_IF_ERROR(TakeBatch(ids.subspan(first, batch)));
    }
    return absl::OkStatus();
  }

  uint64_t seen = 0;
  uint64_t existed = 0;
  uint64_t deleted = 0;  // with --dry-run: that would be

 private:
  absl::Status TakeBatch(absl::Span<const uint64_t> ids) {
    rows_.resize(ids.size() * table_.dim());
    exist_.assign(ids.size(), 0);
    const PullFeature feature{&table_, ids, rows_.data(), RowType::kFp32, exist_.data()};
    HOTBED_RETURN_IF_ERROR(client_.Pull({&feature, 1}).Wait());
    std::vector<uint64_t> wanted;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (exist_[i] == 0) continue;
      ++existed;
      const float* const row = rows_.data() + i * table_.dim();
      if (!where_.has_value() || where_->Takes(row, table_.dim())) wanted.push_back(ids[i]);
    }
    seen += ids.size();
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    if (!dry_run_ && !wanted.empty()) {
      const PushResult result = client_.Delete(++step_, &table_, wanted).Wait();
      if (result.outcome != PushResult::Outcome::kApplied) {
        return absl::Status(result.status.code(),
                            absl::StrCat(result.status.message(), "; ", deleted,
                                         " rows were deleted before; run the command again"));
      }
    }
    deleted += wanted.size();
    return absl::OkStatus();
  }

  Client& client_;
  const Table& table_;
  const bool dry_run_;
  const std::optional<NormCondition> where_;
  uint64_t step_ = 0;
  std::vector<float> rows_;
  std::vector<uint8_t> exist_;
};

// The rows of the range, as a scan lists them.
absl::Status DeleteRange(const CommandContext& context, const RowDeleteFlags& flags,
                         std::pair<uint64_t, uint64_t> range, const InterruptScope& interrupt,
                         Progress* progress, RowDeleter* deleter) {
  FollowOptions options;
  options.once = true;
  options.with_rows = false;
  options.first_id = range.first;
  options.last_id = range.second - 1;
  HOTBED_ASSIGN_OR_RETURN(const auto stream, Follow(absl::StrCat("hotbed://", context.coordinator),
                                                    flags.table, options));
  while (!stream->ended() && !interrupt.interrupted()) {
    HOTBED_ASSIGN_OR_RETURN(const auto changes, stream->Next(kDeleteWait));
    if (changes.has_value()) HOTBED_RETURN_IF_ERROR(deleter->Take(changes->ids));
    progress->Update(deleter->seen, absl::StrCat(deleter->deleted, " rows"));
  }
  return absl::OkStatus();
}

absl::Status DeleteIds(absl::Span<const uint64_t> ids, const InterruptScope& interrupt,
                       Progress* progress, RowDeleter* deleter) {
  for (size_t first = 0; first < ids.size() && !interrupt.interrupted(); first += kBatchRowsMax) {
    HOTBED_RETURN_IF_ERROR(deleter->Take(ids.subspan(first, kBatchRowsMax)));
    progress->Update(deleter->seen, absl::StrCat(deleter->deleted, " rows"));
  }
  return absl::OkStatus();
}

absl::Status Delete(const CommandContext& context, const RowDeleteFlags& flags) {
  if (flags.ids.empty() + flags.ids_file.empty() + flags.range.empty() != 2) {
    return absl::InvalidArgumentError("name the rows by one of --id, --ids-file and --range");
  }
  HOTBED_ASSIGN_OR_RETURN(const std::optional<NormCondition> where, ParseWhere(flags.where));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, IdsOf(flags));
  std::pair<uint64_t, uint64_t> range;
  if (!flags.range.empty()) {
    HOTBED_ASSIGN_OR_RETURN(range, ParseRange(flags.range));
  }
  ClientOptions options;
  options.deadline = context.timeout_duration();
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                          Client::Connect(absl::StrCat("hotbed://", context.coordinator), options));
  HOTBED_ASSIGN_OR_RETURN(const Table* const table, client->OpenTable(flags.table));
  if (!table->options().hashed) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", flags.table,
                     " is bounded, and its rows are not deleted; allowed: hashed tables"));
  }
  HOTBED_RETURN_IF_ERROR(Confirm(
      context, flags.confirm,
      absl::StrCat("Rows of table ", flags.table, " will be deleted with their optimizer state."),
      flags.table));
  RowDeleter deleter(client.get(), table, flags, where);
  const InterruptScope interrupt;
  Progress progress(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                    flags.confirm.dry_run ? "looking at rows" : "deleting rows", ids.size());
  HOTBED_RETURN_IF_ERROR(flags.range.empty()
                             ? DeleteIds(ids, interrupt, &progress, &deleter)
                             : DeleteRange(context, flags, range, interrupt, &progress, &deleter));
  progress.Finish();
  const bool whole = !interrupt.interrupted();
  const nlohmann::ordered_json json = {
      {"table", flags.table},       {"ids", deleter.seen},
      {"existed", deleter.existed}, {"deleted", flags.confirm.dry_run ? 0 : deleter.deleted},
      {"matched", deleter.deleted}, {"dry_run", flags.confirm.dry_run},
      {"interrupted", !whole},
  };
  return context.Answer(
      json, absl::StrCat(deleter.seen, " ids, of which ", deleter.existed, " had a row; ",
                         deleter.deleted, flags.confirm.dry_run ? " would be" : " were", " deleted",
                         whole ? "" : " before the interrupt", "\n"));
}

}  // namespace

void AddRowDeleteCommand(CLI::App* row, CommandContext* context) {
  auto flags = std::make_shared<RowDeleteFlags>();
  CLI::App* app = row->add_subcommand(
      "delete", "Delete rows of a hashed table: they read as their first values again");
  app->add_option("TABLE", flags->table, "Name of the table")->required();
  app->add_option("--id", flags->ids,
                  "Ids: 0..18446744073709551615, 0x hexadecimal, or negative (its 64 bits)")
      ->check(
          [](const std::string& text) { return std::string(ParseId(text).status().message()); });
  app->add_option("--ids-file", flags->ids_file, "File with an id per line");
  app->add_option("--range", flags->range, "A:B, the rows there are with ids from A to B - 1");
  app->add_option("--where", flags->where,
                  "Only rows whose weights have such a norm: 'norm<X' or 'norm>X'. A row is looked "
                  "at once, a moment before it is deleted");
  RunsConfirmed(app, context, &flags->confirm,
                [context, flags] { return Delete(*context, *flags); });
}

}  // namespace hotbed
