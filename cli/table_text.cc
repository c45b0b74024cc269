#include "cli/table_text.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/table_printer.h"

namespace hotbed {

namespace {

struct InitializerForm {
  const char* word;
  InitializerKind kind;
  size_t numbers;
};
constexpr InitializerForm kInitializers[] = {
    {"zero", InitializerKind::kZero, 0},
    {"constant", InitializerKind::kConstant, 1},
    {"uniform", InitializerKind::kUniform, 2},
    {"normal", InitializerKind::kNormal, 2},
    {"truncated-normal", InitializerKind::kTruncatedNormal, 2},
};

absl::Status BadInitializer(const std::string& text) {
  return absl::InvalidArgumentError(
      absl::StrCat("--init '", text,
                   "' is not one of zero, constant:VALUE, uniform:LOW,HIGH, normal:MEAN,DEVIATION, "
                   "truncated-normal:MEAN,DEVIATION"));
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
    if (form.numbers == 1) return absl::StrFormat("%s:%g", form.word, initializer.a);
    return absl::StrFormat("%s:%g,%g", form.word, initializer.a, initializer.b);
  }
  return "unknown";
}

std::string OptimizerText(const OptimizerParams& o) {
  std::string out =
      absl::StrFormat("%s lr=%g", kOptimizerWords[static_cast<size_t>(o.kind)], o.learning_rate);
  if (o.kind != OptimizerKind::kSgd) absl::StrAppendFormat(&out, " eps=%g", o.epsilon);
  if (o.kind == OptimizerKind::kAdam) {
    absl::StrAppendFormat(&out, " beta1=%g beta2=%g", o.beta1, o.beta2);
  }
  if (o.weight_decay != 0) absl::StrAppendFormat(&out, " weight-decay=%g", o.weight_decay);
  if (o.initial_accumulator != 0) {
    absl::StrAppendFormat(&out, " initial-accumulator=%g", o.initial_accumulator);
  }
  return out;
}

std::string KindText(const TableSpec& spec) {
  if (!spec.hashed) return absl::StrCat("bounded, ", WithCommas(spec.rows), " rows");
  return spec.rows == 0 ? "hashed" : absl::StrCat("hashed, about ", WithCommas(spec.rows), " rows");
}

nlohmann::ordered_json TableJson(const TableSpec& spec) {
  const OptimizerParams& o = spec.optimizer;
  return {{"id", spec.id},
          {"name", spec.name},
          {"hashed", spec.hashed},
          {"rows", spec.rows},
          {"dim", spec.dim},
          {"weight_type", kWeightTypeWords[static_cast<size_t>(spec.weight_type)]},
          {"optimizer",
           {{"kind", kOptimizerWords[static_cast<size_t>(o.kind)]},
            {"learning_rate", o.learning_rate},
            {"epsilon", o.epsilon},
            {"beta1", o.beta1},
            {"beta2", o.beta2},
            {"weight_decay", o.weight_decay},
            {"initial_accumulator", o.initial_accumulator}}},
          {"initializer", InitializerText(spec.initializer)},
          {"seed", spec.seed},
          {"durability", kDurabilityWords[static_cast<size_t>(spec.durability)]},
          {"nan_policy", kNanPolicyWords[static_cast<size_t>(spec.nan_policy)]},
          {"weight_bytes_per_row", spec.weight_bytes_per_row()},
          {"state_bytes_per_row", spec.state_bytes_per_row()}};
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
  return {{"shard", ShardName(map, record.shard())},
          {"range", {record.range_first(), record.range_limit()}},
          {"columns", {record.column_first(), record.column_limit()}},
          {"epoch", record.epoch()},
          {"primary", ServerName(map, record.primary().server())},
          {"members", members},
          {"active", record.active()}};
}

}  // namespace hotbed
