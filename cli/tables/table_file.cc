#include "cli/tables/table_file.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/tables/table_option.h"
#include "common/status_macros.h"
#include "planner/json/json_fields.h"
#include "planner/json/parse_json.h"

namespace hotbed {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

// Keys of `table describe -o json` that are not options: they describe the placed table.
bool IsTold(absl::string_view key, const PlanJson& value) {
  return key == "id" || key == "weight-bytes-per-row" || key == "state-bytes-per-row" ||
         key == "created" || key == "altered" || key == "dry-run" || key == "servers" ||
         key == "memory" || key == "parameters" || key == "row" || key == "parts" ||
         key == "bytes-when-full" || (key == "shards" && value.is_array());
}

// A value as the text of the option's flag.
absl::StatusOr<std::string> TextOf(const PlanJson& json, OptionShape shape) {
  const auto expected = [&json](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected ", what, ", found ",
        json.is_primitive() && !json.is_null() ? Shown(json.dump()) : json.type_name()));
  };
  switch (shape) {
    case OptionShape::kFlag:
      if (!json.is_boolean()) return expected("true or false");
      return json.get<bool>() ? "true" : "false";
    case OptionShape::kInteger:
      if (json.is_number_integer()) return json.dump();
      if (json.is_number_float() && json.get<double>() == std::floor(json.get<double>()) &&
          std::abs(json.get<double>()) < kTwoTo63) {  // 1e6 is a whole number too
        return absl::StrCat(static_cast<int64_t>(json.get<double>()));
      }
      return expected("a whole number");
    case OptionShape::kNumber:
      if (!json.is_number()) return expected("a number");
      return json.dump();
    case OptionShape::kText:
      if (!json.is_string()) return expected("a string");
      return json.get<std::string>();
  }
  return expected("a value");
}

std::vector<absl::string_view> KnownKeys() {
  std::vector<absl::string_view> known = {"name", "shards", "changes"};
  for (const TableOption& option : TableOptionList()) {
    known.push_back(option.name);
    if (*option.alias != '\0') known.push_back(option.alias);
  }
  return known;
}

// Reads one table and keeps the first failure.
class TableReader {
 public:
  TableReader(std::string path, FieldFailure* failure) : path_(std::move(path)), failure_(failure) {
    table_.spec = DefaultTableSpec();
  }

  AskedTable Read(const PlanJson& json) {
    if (!json.is_object()) {
      failure_->Set(path_, absl::StrCat("expected an object, found ", json.type_name()));
      return table_;
    }
    for (const auto& [key, value] : json.items()) ReadKey(key, value);
    for (const char* required : {"name", "dim", "rows"}) {
      const std::string name = required;
      const bool needed = name == "rows"  ? !table_.spec.hashed
                          : name == "dim" ? table_.spec.vocabulary == 0
                                          : true;
      if (needed && !given_.contains(required)) Fail(required, "missing");
    }
    const absl::Status valid = ValidateTableSpec(table_.spec);
    if (!valid.ok()) failure_->Set(path_, valid.message());
    return table_;
  }

 private:
  void Fail(absl::string_view key, absl::string_view message) {
    failure_->Set(absl::StrCat(path_, ".", key), message);
  }
  void Check(absl::string_view key, const absl::Status& status) {
    if (!status.ok()) Fail(key, status.message());
  }

  // False, with a failure, if an option occurs under two spellings.
  bool IsFirst(absl::string_view key, const std::string& name) {
    if (given_.emplace(name, key).second) return true;
    Fail(key, absl::StrCat("given twice, as '", given_[name], "' too"));
    return false;
  }

  void ReadKey(const std::string& key, const PlanJson& value) {
    const std::string dashed = Dashed(key);
    if (IsTold(dashed, value)) return;
    if (dashed == "name" && IsFirst(key, "name")) {
      return ReadJson(value, absl::StrCat(path_, ".name"), failure_, &table_.spec.name);
    }
    if (dashed == "shards" && IsFirst(key, "shards")) {
      return ReadJson(value, absl::StrCat(path_, ".shards"), failure_, &table_.shards);
    }
    if (dashed == "part-of") {
      return Fail(key,
                  "the table is a part of a composed one; list that one, which makes its parts");
    }
    if (dashed == "changes" && IsFirst(key, "changes")) return ReadChanges(value);
    // Groups, in the form of describe: their keys are options, and `kind` is the option itself.
    const bool group = dashed == "optimizer" || dashed == "schedule" || dashed == "life";
    if (group && value.is_object()) {
      for (const auto& [member, inner] : value.items()) {
        ReadOption(absl::StrCat(key, ".", member), absl::StrCat(dashed, ".", member), inner,
                   &table_.spec);
      }
      return;
    }
    ReadOption(key, key, value, &table_.spec);
  }

  void ReadOption(const std::string& shown, const std::string& name, const PlanJson& value,
                  TableSpec* spec) {
    const TableOption* const option = FindTableOption(name);
    if (option == nullptr) {
      return Fail(shown,
                  absl::StrCat("unknown key '", Shown(shown), "'; the nearest known one is '",
                               NearestOf(Dashed(shown), KnownKeys()), "'"));
    }
    if (!IsFirst(shown, option->name)) return;
    Set(shown, *option, value, spec);
  }

  void Set(const std::string& shown, const TableOption& option, const PlanJson& value,
           TableSpec* spec) {
    if (value.is_null() && option.print(TableSpec()).empty()) return;  // not set
    const absl::StatusOr<std::string> text = TextOf(value, option.shape);
    Check(shown, text.ok() ? SetTableOption(option, *text, spec) : text.status());
  }

  void ReadChanges(const PlanJson& json) {
    if (!json.is_array()) return Fail("changes", "expected a list");
    for (const PlanJson& item : json) {
      const std::string path = absl::StrCat("changes[", table_.spec.changes.size(), "]");
      if (!item.is_object()) return Fail(path, "expected an object");
      table_.spec.changes.push_back(ReadChange(path, item));
    }
  }

  TableChange ReadChange(const std::string& path, const PlanJson& json) {
    TableChange change;
    TableSpec asked;
    for (const auto& [key, value] : json.items()) {
      const std::string dashed = Dashed(key);
      const std::string shown = absl::StrCat(path, ".", key);
      if (dashed == "at-step") {
        ReadJson(value, absl::StrCat(path_, ".", shown), failure_, &change.at_step);
      } else if ((dashed == "schedule" || dashed == "life") && value.is_object()) {
        (dashed == "life" ? change.has_life : change.has_schedule) = true;
        for (const auto& [member, inner] : value.items()) {
          const TableOption* const option = FindTableOption(absl::StrCat(dashed, ".", member));
          if (option == nullptr || (dashed == "life" && option->fixed_because != nullptr)) {
            Fail(absl::StrCat(shown, ".", member), "unknown key");
          } else {
            Set(absl::StrCat(shown, ".", member), *option, inner, &asked);
          }
        }
      } else if (dashed == "learning-rate" || dashed == "clip-value" || dashed == "clip-row-norm" ||
                 dashed == "memory-share-min" || dashed == "memory-share-max") {
        const TableOption& option = *FindTableOption(dashed);
        Set(shown, option, value, &asked);
        TakeChange(option, asked, &change);
      } else {
        Fail(shown,
             "unknown key; a change has at_step, learning_rate, clip_value, clip_row_norm, "
             "memory_share_min, memory_share_max, schedule and life");
      }
    }
    change.schedule = asked.schedule;
    change.life = asked.life;
    return change;
  }

  const std::string path_;
  FieldFailure* const failure_;
  AskedTable table_;
  std::map<std::string, std::string> given_;  // option -> the key that set it
};

}  // namespace

TableSpec DefaultTableSpec() {
  TableSpec spec;
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  return spec;
}

absl::StatusOr<std::vector<AskedTable>> ReadTableFile(absl::string_view text) {
  PlanResult<PlanJson> json = ParseJson(text);
  if (!json.ok()) return absl::InvalidArgumentError(json.error().message);
  if (json.value().is_object()) json.value() = PlanJson::array({std::move(json.value())});
  if (!json.value().is_array() || json.value().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a table or a list of tables, [{\"name\": ..., \"dim\": ...}, ...], "
                     "found ",
                     json.value().is_array() ? "an empty one" : json.value().type_name()));
  }
  FieldFailure failure;
  std::vector<AskedTable> tables;
  std::map<std::string, size_t> names;
  for (const PlanJson& item : json.value()) {
    const std::string path = absl::StrCat("tables[", tables.size(), "]");
    tables.push_back(TableReader(path, &failure).Read(item));
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
