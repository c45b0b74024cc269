#include "cli/commands/tables/table_flags.h"

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/tables/table_file.h"

namespace hotbed {
namespace {

constexpr int kFlagColumns = 46;  // so that most flags take one line of --help
constexpr size_t kWordsMax = 36;  // longer lists are printed in the text of the flag

std::string FlagNames(const TableOption& option) {
  const std::string flag = absl::StrCat("--", option.name);
  // For an option with a text value, the second name is for files only.
  if (*option.alias == '\0' || option.shape == OptionShape::kText) return flag;
  return absl::StrCat("--", option.alias, ",", flag);
}

// The type after the flag, in the style of CLI11.
std::string TypeName(const TableOption& option) {
  if (option.words != nullptr) {
    const std::string words = absl::StrCat("{", absl::StrJoin(*option.words, ","), "}");
    return words.size() <= kWordsMax ? words : "WORD";
  }
  switch (option.shape) {
    case OptionShape::kInteger:
      return "N";
    case OptionShape::kNumber:
      return "X";
    default:
      return "TEXT";
  }
}

std::string About(const TableOption& option) {
  if (option.words == nullptr || TypeName(option) != "WORD") return option.about;
  return absl::StrCat(option.about, ": ", absl::StrJoin(*option.words, ", "));
}

void Take(const TableOption& option, const std::string& text, GivenOptions* given) {
  TableSpec scratch;
  const absl::Status status = SetTableOption(option, text, &scratch);
  if (!status.ok()) {
    throw CLI::ValidationError(absl::StrCat("--", option.name), std::string(status.message()));
  }
  given->emplace_back(&option, text);
}

}  // namespace

void AddTableFlags(CLI::App* app, bool only_changing, GivenOptions* given) {
  auto formatter = std::make_shared<CLI::Formatter>();
  formatter->column_width(kFlagColumns);
  app->formatter(formatter);
  const TableSpec defaults = DefaultTableSpec();
  for (const TableOption& option : TableOptionList()) {
    const TableOption* const it = &option;
    CLI::Option* flag = nullptr;
    if (option.shape == OptionShape::kFlag) {
      flag = app->add_flag_function(
          FlagNames(option),
          [it, given](int64_t count) { Take(*it, count > 0 ? "true" : "false", given); },
          About(option));
    } else {
      flag = app->add_option_function<std::string>(
          FlagNames(option), [it, given](const std::string& text) { Take(*it, text, given); },
          About(option));
      flag->type_name(TypeName(option));
      const bool required = absl::string_view(option.name) == "dim";
      if (!only_changing && !required) flag->default_str(option.print(defaults));
    }
    flag->group(only_changing && option.fixed_because != nullptr ? "" : option.group);
  }
}

absl::Status NamingItsFlag(const absl::Status& status) {
  if (status.ok()) return status;
  for (const TableOption& option : TableOptionList()) {
    // For a value of several numbers the error names the part: "initializer.b is".
    if (absl::StrContains(status.message(), absl::StrCat(": ", option.field, " is ")) ||
        absl::StrContains(status.message(), absl::StrCat(": ", option.field, ".")) ||
        absl::StrContains(status.message(), absl::StrCat("].", option.field, " is "))) {
      return absl::Status(status.code(), absl::StrCat("--", option.name, ": ", status.message()));
    }
  }
  return status;
}

}  // namespace hotbed
