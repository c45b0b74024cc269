#include "cli/tables/table_text.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/tables/table_option.h"
#include "common/tables/composition.h"
#include "terminal/table_printer.h"

namespace hotbed {

namespace {

struct InitializerForm {
  const char* word;
  InitializerKind kind;
  size_t numbers;
};
constexpr InitializerForm kInitializers[] = {
    {"scaled", InitializerKind::kScaled, 0},
    {"zero", InitializerKind::kZero, 0},
    {"constant", InitializerKind::kConstant, 1},
    {"uniform", InitializerKind::kUniform, 2},
    {"normal", InitializerKind::kNormal, 2},
    {"truncated-normal", InitializerKind::kTruncatedNormal, 2},
};

absl::Status BadInitializer(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text,
      "' is not one of scaled, zero, constant:VALUE, uniform:LOW,HIGH, normal:MEAN,DEVIATION, "
      "truncated-normal:MEAN,DEVIATION"));
}

// Whether the optimizer's formula has this term, which is then shown even at its default.
bool IsTermOf(OptimizerKind kind, absl::string_view name) {
  const bool momentum = kind == OptimizerKind::kMomentumSgd || kind == OptimizerKind::kLars;
  const bool ftrl = kind == OptimizerKind::kFtrl;
  if (name == "learning_rate") return true;
  if (name == "counter_mode") return CountsUpdates(kind);
  const bool lion = kind == OptimizerKind::kLion;
  if (name == "epsilon") return kind != OptimizerKind::kSgd && !momentum && !ftrl && !lion;
  if (name == "beta1") return IsAdamKind(kind) || lion;
  if (name == "beta2") {
    return IsAdamKind(kind) || lion || kind == OptimizerKind::kRmsProp ||
           kind == OptimizerKind::kRowwiseRmsProp || kind == OptimizerKind::kAdadelta;
  }
  if (name == "momentum") return momentum;
  if (name == "trust_coefficient") return kind == OptimizerKind::kLars;
  return ftrl && (name == "l1" || name == "l2" || name == "ftrl_beta");
}

using Json = nlohmann::ordered_json;

// Whether rows keep it for the policies by which they come and go, and not for the optimizer.
bool IsKeptForPolicies(absl::string_view field) {
  return field == "optimizer.touches" || absl::StartsWith(field, "optimizer.show");
}

// The shortest decimal, such as 0.1, instead of the exact value of the float.
Json NumberJson(float value) { return std::strtod(FloatText(value).c_str(), nullptr); }

Json ValueJson(const TableOption& option, const std::string& text) {
  uint64_t integer = 0;
  if (option.shape == OptionShape::kText) return text;
  if (text.empty()) return nullptr;
  if (option.shape == OptionShape::kFlag) return text == "true";
  if (option.shape == OptionShape::kNumber) return std::strtod(text.c_str(), nullptr);
  return absl::SimpleAtoi(text, &integer) ? Json(integer) : Json(text);
}

Json ScheduleJson(const Schedule& schedule) {
  TableSpec spec;
  spec.schedule = schedule;
  return TableJson(spec)["schedule"];
}

}  // namespace

absl::StatusOr<InitializerParams> ParseInitializer(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  std::vector<std::string> numbers;
  if (parts.size() == 2) numbers = absl::StrSplit(parts[1], ',');
  for (const InitializerForm& form : kInitializers) {
    if (parts[0] != form.word) continue;
    if (numbers.size() != form.numbers) return BadInitializer(text);
    InitializerParams params;
    params.kind = form.kind;
    if (form.numbers > 0 && !absl::SimpleAtof(numbers[0], &params.a)) return BadInitializer(text);
    if (form.numbers > 1 && !absl::SimpleAtof(numbers[1], &params.b)) return BadInitializer(text);
    return params;
  }
  return BadInitializer(text);
}

std::string InitializerText(const InitializerParams& initializer) {
  for (const InitializerForm& form : kInitializers) {
    if (form.kind != initializer.kind) continue;
    if (form.numbers == 0) return form.word;
    if (form.numbers == 1) return absl::StrCat(form.word, ":", FloatText(initializer.a));
    return absl::StrCat(form.word, ":", FloatText(initializer.a), ",", FloatText(initializer.b));
  }
  return "unknown";
}

std::string OptimizerText(const OptimizerParams& o) {
  if (o.kind == OptimizerKind::kNone) return "none";
  TableSpec spec;
  spec.optimizer = o;
  const TableSpec defaults;
  std::string out = kOptimizerWords[static_cast<size_t>(o.kind)];
  for (const TableOption& option : TableOptionList()) {
    absl::string_view name = option.field;
    if (IsKeptForPolicies(name)) continue;
    if (!absl::ConsumePrefix(&name, "optimizer.") || name == "kind") continue;
    const std::string value = option.print(spec);
    const bool own = IsTermOf(o.kind, name);
    if (!own && value == option.print(defaults)) continue;
    if (option.shape == OptionShape::kFlag) {
      absl::StrAppend(&out, " ", option.name);
    } else {
      const char* const shown = *option.alias != '\0' ? option.alias : option.name;
      absl::StrAppend(&out, " ", shown, "=", value);
    }
  }
  return out;
}

std::string PoliciesText(const TableSpec& spec) {
  TableSpec now = spec;
  now.life = LifeOf(spec);
  const TableSpec defaults;
  std::string out;
  for (const TableOption& option : TableOptionList()) {
    const absl::string_view field = option.field;
    if (!IsKeptForPolicies(field) && !absl::StartsWith(field, "life.")) continue;
    const std::string value = option.print(now);
    if (value == option.print(defaults)) continue;
    absl::StrAppend(&out, out.empty() ? "" : " ", option.name);
    if (option.shape != OptionShape::kFlag) absl::StrAppend(&out, "=", value);
  }
  return out.empty() ? "they stay" : out;
}

std::string KindText(const TableSpec& spec) {
  if (spec.vocabulary > 0) {
    return absl::StrCat("vocabulary of ", WithCommas(spec.vocabulary), " keys");
  }
  if (!spec.hashed) return absl::StrCat("bounded, ", WithCommas(spec.rows), " rows");
  return spec.rows == 0 ? "hashed" : absl::StrCat("hashed, about ", WithCommas(spec.rows), " rows");
}

nlohmann::ordered_json ChangeJson(const TableChange& change) {
  Json json = {{"at_step", change.at_step}};
  if (change.has_learning_rate) json["learning_rate"] = NumberJson(change.learning_rate);
  if (change.has_clip_value) json["clip_value"] = NumberJson(change.clip_value);
  if (change.has_clip_row_norm) json["clip_row_norm"] = NumberJson(change.clip_row_norm);
  if (change.has_schedule) json["schedule"] = ScheduleJson(change.schedule);
  if (change.has_memory_share_min) json["memory_share_min"] = NumberJson(change.memory_share_min);
  if (change.has_memory_share_max) json["memory_share_max"] = NumberJson(change.memory_share_max);
  if (!change.has_life) return json;
  TableSpec changed;
  changed.life = change.life;
  for (const TableOption& option : TableOptionList()) {
    absl::string_view field = option.field;
    if (option.fixed_because != nullptr || !absl::ConsumePrefix(&field, "life.")) continue;
    json["life"][std::string(field)] = ValueJson(option, option.print(changed));
  }
  return json;
}

nlohmann::ordered_json TableJson(const TableSpec& spec) {
  Json json = {{"id", spec.id}, {"name", spec.name}};
  if (IsPart(spec)) {
    TableSpec alone = spec;
    alone.composition = Composition();
    json = TableJson(alone);
    json["part_of"] = spec.composition.table;
    return json;
  }
  for (const TableOption& option : TableOptionList()) {
    const std::vector<std::string> path = absl::StrSplit(option.field, '.');
    Json& at = path.size() == 1 ? json[path[0]] : json[path[0]][path[1]];
    at = ValueJson(option, option.print(spec));
  }
  json["changes"] = Json::array();
  for (const TableChange& change : spec.changes) json["changes"].push_back(ChangeJson(change));
  json["weight_bytes_per_row"] = spec.weight_bytes_per_row();
  json["state_bytes_per_row"] = spec.state_bytes_per_row();
  return json;
}

std::string ServerName(const v1::ClusterMap& map, uint64_t server) {
  for (const v1::ServerInfo& info : map.servers()) {
    if (info.server() == server)
      return info.name().empty() ? absl::StrCat("server ", server) : info.name();
  }
  return server == 0 ? "none" : absl::StrCat("server ", server);
}

std::string ShardName(const v1::ClusterMap& map, uint64_t packed_shard) {
  const ShardId shard = ShardId::FromPacked(packed_shard);
  for (const v1::TableSpec& table : map.tables()) {
    if (table.id() == shard.table) return absl::StrCat(table.name(), "/", shard.index);
  }
  return absl::StrCat(shard.table, "/", shard.index);
}

std::string ColumnsText(const v1::ShardRecord& record) {
  return absl::StrCat(record.column_first(), "..", record.column_limit() - 1);
}

nlohmann::ordered_json ShardJson(const v1::ClusterMap& map, const v1::ShardRecord& record) {
  nlohmann::ordered_json members = nlohmann::ordered_json::array();
  for (const v1::Member& member : record.members())
    members.push_back(ServerName(map, member.server()));
  nlohmann::ordered_json learners = nlohmann::ordered_json::array();
  for (const v1::Member& learner : record.learners())
    learners.push_back(ServerName(map, learner.server()));
  return {{"shard", ShardName(map, record.shard())},
          {"range", {record.range_first(), record.range_limit()}},
          {"columns", {record.column_first(), record.column_limit()}},
          {"epoch", record.epoch()},
          {"primary", ServerName(map, record.primary().server())},
          {"members", members},
          {"learners", learners},
          {"active", record.active()}};
}

}  // namespace hotbed
