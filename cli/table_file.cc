#include "cli/table_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/table_text.h"
#include "common/status_macros.h"
#include "planner/json/json_fields.h"
#include "planner/json/parse_json.h"

namespace hotbed {
namespace {

std::string Dashed(absl::string_view word) { return absl::StrReplaceAll(word, {{"_", "-"}}); }

// The object with dashes in its keys; what is no object is left for JsonFields to refuse.
PlanJson WithDashedKeys(const PlanJson& json) {
  if (!json.is_object()) return json;
  PlanJson out = PlanJson::object();
  for (const auto& [key, value] : json.items()) {
    // A second spelling of a key must not hide the first.
    const std::string dashed = Dashed(key);
    out[out.contains(dashed) ? key : dashed] = value;
  }
  return out;
}

template <typename Enum>
void ReadWord(const JsonFields& fields, const char* key, const std::vector<std::string>& words,
              FieldFailure* failure, Enum* out) {
  std::string word;
  fields.Optional(key, &word);
  if (fields.Find(key) == nullptr) return;
  const auto found = std::find(words.begin(), words.end(), Dashed(word));
  if (found == words.end()) {
    failure->Set(fields.Path(key),
                 absl::StrCat("'", Shown(word), "' is not one of ", absl::StrJoin(words, ", ")));
    return;
  }
  *out = static_cast<Enum>(found - words.begin());
}

void ReadFloat(const JsonFields& fields, const char* key, float* out) {
  double value = *out;
  fields.Optional(key, &value);
  *out = static_cast<float>(value);
}

AskedTable ReadTable(const PlanJson& json, const std::string& path, FieldFailure* failure) {
  const JsonFields fields(
      json, path,
      {"name", "dim", "rows", "hashed", "optimizer", "lr", "eps", "beta1", "beta2", "weight-decay",
       "initial-accumulator", "init", "weight-type", "durability", "nan", "seed", "shards"},
      failure);
  AskedTable table;
  table.spec = DefaultTableSpec();
  TableSpec& spec = table.spec;
  fields.Required("name", &spec.name);
  fields.Required("dim", &spec.dim);
  fields.Optional("hashed", &spec.hashed);
  if (spec.hashed) {
    fields.Optional("rows", &spec.rows);
  } else {
    fields.Required("rows", &spec.rows);
  }
  OptimizerParams& o = spec.optimizer;
  ReadWord(fields, "optimizer", kOptimizerWords, failure, &o.kind);
  ReadFloat(fields, "lr", &o.learning_rate);
  ReadFloat(fields, "eps", &o.epsilon);
  ReadFloat(fields, "beta1", &o.beta1);
  ReadFloat(fields, "beta2", &o.beta2);
  ReadFloat(fields, "weight-decay", &o.weight_decay);
  ReadFloat(fields, "initial-accumulator", &o.initial_accumulator);
  std::string init = "zero";
  fields.Optional("init", &init);
  const absl::StatusOr<InitializerParams> initializer = ParseInitializer(Dashed(init));
  if (initializer.ok()) {
    spec.initializer = *initializer;
  } else {
    failure->Set(fields.Path("init"), initializer.status().message());
  }
  ReadWord(fields, "weight-type", kWeightTypeWords, failure, &spec.weight_type);
  ReadWord(fields, "durability", kDurabilityWords, failure, &spec.durability);
  ReadWord(fields, "nan", kNanPolicyWords, failure, &spec.nan_policy);
  fields.Optional("seed", &spec.seed);
  fields.Optional("shards", &table.shards);
  const absl::Status valid = ValidateTableSpec(spec);
  if (!valid.ok()) failure->Set(path, valid.message());
  return table;
}

}  // namespace

TableSpec DefaultTableSpec() {
  TableSpec spec;
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  return spec;
}

absl::StatusOr<std::vector<AskedTable>> ReadTableFile(absl::string_view text) {
  const PlanResult<PlanJson> json = ParseJson(text);
  if (!json.ok()) return absl::InvalidArgumentError(json.error().message);
  if (!json.value().is_array() || json.value().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a list of tables, [{\"name\": ..., \"dim\": ...}, ...], found ",
                     json.value().is_array() ? "an empty one" : json.value().type_name()));
  }
  FieldFailure failure;
  std::vector<AskedTable> tables;
  std::map<std::string, size_t> names;
  for (const PlanJson& item : json.value()) {
    const std::string path = absl::StrCat("tables[", tables.size(), "]");
    tables.push_back(ReadTable(WithDashedKeys(item), path, &failure));
    const std::string& name = tables.back().spec.name;
    const auto [first, is_first] = names.emplace(name, tables.size() - 1);
    if (!is_first) {
      failure.Set(
          absl::StrCat(path, ".name"),
          absl::StrCat("'", Shown(name), "' is the name of tables[", first->second, "] too"));
    }
    if (failure.error) return absl::InvalidArgumentError(failure.error->message);
  }
  return tables;
}

}  // namespace hotbed
