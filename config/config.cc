#include "config/config.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/files/file_system.h"
#include "common/host_port.h"
#include "common/json.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "config/yaml_source.h"

namespace hotbed {
namespace {

constexpr char kEnvironmentPrefix[] = "HOTBED_";
constexpr char kConfigFlag[] = "config";
constexpr size_t kShownBytesMax = 200;

std::string EnvironmentName(const std::string& name) {
  return kEnvironmentPrefix + absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}}));
}

// Which of the two was meant is anybody's guess: one of them may have been put there long ago.
absl::Status GivenTwice(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("flag --", name, " is given twice; leave one of them out"));
}

std::string NumberText(double value) {
  // The shortest text that parses to the same number.
  const std::string brief = absl::StrFormat("%.6g", value);
  double parsed = 0;
  return absl::SimpleAtod(brief, &parsed) && parsed == value ? brief
                                                             : absl::StrFormat("%.17g", value);
}

// Text of others in a message: cut and on one line.
std::string Shown(absl::string_view text) { return absl::CEscape(text.substr(0, kShownBytesMax)); }

absl::Status Expected(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("is not valid, expected ", what));
}

std::string BytesText(double bytes) { return FormatBytes(static_cast<uint64_t>(bytes)); }
std::string MillisText(double millis) { return ExactMillis(static_cast<int64_t>(millis)); }

// A number as `parse` reads it, within the limits; `text` writes them for the error.
template <typename T>
std::function<absl::StatusOr<T>(const std::string&)> Limited(
    absl::StatusOr<T> (*parse)(const std::string&), Limits limits, std::string (*text)(double)) {
  return [=](const std::string& given) -> absl::StatusOr<T> {
    HOTBED_ASSIGN_OR_RETURN(const T value, parse(given));
    const double number = static_cast<double>(value);
    if (number >= limits.min && number <= limits.max) return value;
    return absl::InvalidArgumentError(
        limits.max < Limits().max
            ? absl::StrCat("is out of range, allowed: ", text(limits.min), " to ", text(limits.max))
            : absl::StrCat("is out of range, allowed: at least ", text(limits.min)));
  };
}

absl::StatusOr<int64_t> ParseWhole(const std::string& text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return Expected("a whole number");
  return value;
}

absl::StatusOr<double> ParseNumber(const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return Expected("a number");
  return value;
}

}  // namespace

struct ConfigSchema::Entry {
  std::string name;
  std::string placeholder;
  std::string help;
  std::function<absl::Status(const std::string& text)> parse;  // assigns the caller's value
  std::function<std::string()> print;  // a YAML scalar that parse reads back
  bool is_bool = false;
  std::string origin = "default";
};

ConfigSchema::ConfigSchema(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}
ConfigSchema::~ConfigSchema() = default;

void ConfigSchema::AddEntry(Entry entry) {
  static const std::set<std::string>* const taken =
      new std::set<std::string>{kConfigFlag, "help", "version", "print-config"};
  HOTBED_CHECK(Find(entry.name) == nullptr && taken->count(entry.name) == 0)
      << "flag --" << entry.name << " is declared twice";
  entries_.push_back(std::make_unique<Entry>(std::move(entry)));
}

template <typename T>
void ConfigSchema::AddValue(const std::string& name, T* value, const std::string& placeholder,
                            const std::string& help,
                            std::function<absl::StatusOr<T>(const std::string&)> read,
                            std::function<std::string(const T&)> print) {
  AddEntry({.name = name,
            .placeholder = placeholder,
            .help = help,
            .parse = [value, read = std::move(read)](const std::string& text) -> absl::Status {
              HOTBED_ASSIGN_OR_RETURN(*value, read(text));
              return absl::OkStatus();
            },
            .print = [value, print = std::move(print)] { return print(*value); },
            .is_bool = std::is_same_v<T, bool>});
}

void ConfigSchema::Add(const std::string& name, std::string* value, const std::string& placeholder,
                       const std::string& help) {
  AddValue<std::string>(
      name, value, placeholder, help,
      [](const std::string& text) -> absl::StatusOr<std::string> {
        if (std::any_of(text.begin(), text.end(), absl::ascii_iscntrl)) {
          return Expected("text without line breaks and other control characters");
        }
        return text;
      },
      JsonString);
}

void ConfigSchema::AddHostPort(const std::string& name, std::string* value, const std::string& help,
                               int port_min) {
  AddValue<std::string>(
      name, value, "HOST:PORT", help,
      [port_min](const std::string& text) -> absl::StatusOr<std::string> {
        if (text.empty() || CheckHostPort(text, port_min).ok()) return text;
        return Expected(absl::StrCat("HOST:PORT with a port of ", port_min, " to 65535"));
      },
      JsonString);
}

void ConfigSchema::AddCoordinators(const std::string& name, std::string* value,
                                   const std::string& help) {
  AddValue<std::string>(
      name, value, "HOST:PORT,...", help,
      [](const std::string& text) -> absl::StatusOr<std::string> {
        const absl::string_view addresses = absl::StripPrefix(text, "hotbed://");
        if (text.empty() || CheckHostPorts(addresses, 1).ok()) return std::string(addresses);
        return Expected("HOST:PORT, or several with commas between, with ports of 1 to 65535");
      },
      JsonString);
}

void ConfigSchema::AddChoice(const std::string& name, std::string* value,
                             const std::vector<std::string>& choices, const std::string& help) {
  AddValue<std::string>(
      name, value, absl::StrJoin(choices, "|"), help,
      [choices](const std::string& text) -> absl::StatusOr<std::string> {
        if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
        return Expected(absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
      },
      JsonString);
}

void ConfigSchema::AddBool(const std::string& name, bool* value, const std::string& help) {
  AddValue<bool>(
      name, value, "true|false", help,
      [](const std::string& text) -> absl::StatusOr<bool> {
        if (text != "true" && text != "false") return Expected("true or false");
        return text == "true";
      },
      [](bool on) { return on ? "true" : "false"; });
}

void ConfigSchema::AddInt(const std::string& name, int64_t* value, const std::string& help,
                          Limits limits) {
  AddValue<int64_t>(name, value, "number", help, Limited(ParseWhole, limits, NumberText),
                    [](int64_t number) { return absl::StrCat(number); });
}

void ConfigSchema::AddDouble(const std::string& name, double* value, const std::string& help,
                             Limits limits) {
  AddValue<double>(name, value, "number", help, Limited(ParseNumber, limits, NumberText),
                   NumberText);
}

void ConfigSchema::AddBytes(const std::string& name, uint64_t* value, const std::string& help,
                            Limits limits) {
  AddValue<uint64_t>(name, value, "size", help, Limited(ParseBytes, limits, BytesText), ExactBytes);
}

void ConfigSchema::AddMillis(const std::string& name, int64_t* value, const std::string& help,
                             Limits limits) {
  AddValue<int64_t>(name, value, "duration", help, Limited(ParseMillis, limits, MillisText),
                    ExactMillis);
}

ConfigSchema::Entry* ConfigSchema::Find(const std::string& name) const {
  for (const auto& entry : entries_) {
    if (entry->name == name) return entry.get();
  }
  return nullptr;
}

absl::Status ConfigSchema::Unknown(const std::string& what, const std::string& name) const {
  std::vector<std::string> known = {kConfigFlag, "help", "version", "print-config"};
  for (const auto& entry : entries_) known.push_back(entry->name);
  const std::string nearest = NearestWord(name, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown ", what, nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"), " (",
      program_, " --help lists all)"));
}

absl::Status ConfigSchema::ParseArguments(const std::vector<std::string>& args,
                                          std::vector<Setting>* settings) {
  std::set<std::string> given;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string arg = args[i] == "-o" ? "--output" : args[i];  // as the CLI spells it
    if (!absl::StartsWith(arg, "--") || arg.size() == 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument \"", Shown(arg), "\"; options are --name=value"));
    }
    const std::vector<std::string> parts = absl::StrSplit(arg.substr(2), absl::MaxSplits('=', 1));
    const std::string& name = parts[0];
    const bool has_value = parts.size() == 2;
    if (!has_value && (name == "help" || name == "version" || name == "print-config")) {
      request_ = name == "help"      ? Request::kHelp
                 : name == "version" ? Request::kVersion
                                     : Request::kPrintConfig;
      continue;
    }
    const Entry* const entry = Find(name);
    if (!has_value && entry == nullptr && absl::StartsWith(name, "no-")) {
      const Entry* const negated = Find(name.substr(3));
      if (negated != nullptr && negated->is_bool) {
        if (!given.insert(negated->name).second) return GivenTwice(negated->name);
        settings->push_back({negated->name, "false", absl::StrCat("flag --", name)});
        continue;
      }
    }
    if (entry == nullptr && name != kConfigFlag) {
      return Unknown(absl::StrCat("flag --", Shown(name)), name);
    }
    if (!given.insert(name).second) return GivenTwice(name);
    std::string value = has_value ? parts[1] : "true";
    if (!has_value && (entry == nullptr || !entry->is_bool)) {
      if (i + 1 == args.size()) {
        return absl::InvalidArgumentError(absl::StrCat("flag --", name, " has no value"));
      }
      value = args[++i];
    }
    if (entry == nullptr) {
      config_path_ = value;
    } else {
      settings->push_back({name, value, absl::StrCat("flag --", name)});
    }
  }
  return absl::OkStatus();
}

std::vector<ConfigSchema::Setting> ConfigSchema::FromEnvironment(
    const std::vector<std::pair<std::string, std::string>>& environment) {
  std::vector<Setting> settings;
  for (const auto& [variable, value] : environment) {
    if (!absl::StartsWith(variable, kEnvironmentPrefix)) continue;
    if (variable == EnvironmentName(kConfigFlag)) {
      if (config_path_.empty()) config_path_ = value;
      continue;
    }
    const auto named = [&, &variable = variable](const std::unique_ptr<Entry>& entry) {
      return EnvironmentName(entry->name) == variable;
    };
    const auto entry = std::find_if(entries_.begin(), entries_.end(), named);
    if (entry != entries_.end()) {
      settings.push_back({(*entry)->name, value, absl::StrCat("environment ", variable)});
      continue;
    }
    std::vector<std::string> known;
    for (const auto& e : entries_) known.push_back(EnvironmentName(e->name));
    const std::string nearest = NearestWord(variable, known);
    warnings_.push_back(
        absl::StrCat("environment variable ", variable, " is not known to ", program_,
                     nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  }
  return settings;
}

absl::Status ConfigSchema::Apply(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    Entry* const entry = Find(setting.name);
    const absl::Status status = entry->parse(setting.text);
    if (!status.ok()) {
      // Messages about units begin with the value themselves.
      const std::string quoted = absl::StrCat("\"", setting.text, "\" ");
      return absl::InvalidArgumentError(absl::StrCat(setting.origin, ": ", setting.name, " = \"",
                                                     Shown(setting.text), "\" ",
                                                     absl::StripPrefix(status.message(), quoted)));
    }
    entry->origin = setting.origin;
  }
  return absl::OkStatus();
}

absl::Status ConfigSchema::Resolve(
    const std::vector<std::string>& args,
    const std::vector<std::pair<std::string, std::string>>& environment) {
  warnings_.clear();
  config_path_.clear();
  request_ = Request::kRun;
  std::vector<Setting> flags;
  HOTBED_RETURN_IF_ERROR(ParseArguments(args, &flags));
  if (request_ == Request::kHelp || request_ == Request::kVersion) return absl::OkStatus();
  const std::vector<Setting> variables = FromEnvironment(environment);
  std::vector<Setting> file;
  if (!config_path_.empty()) {
    HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(config_path_));
    HOTBED_ASSIGN_OR_RETURN(const auto yaml, ParseYamlSettings(config_path_, text));
    for (const YamlSetting& setting : yaml) {
      const std::string origin = absl::StrCat(config_path_, " line ", setting.line);
      if (Find(setting.key) == nullptr) {
        return Unknown(absl::StrCat("key ", setting.key, " in ", origin), setting.key);
      }
      file.push_back({setting.key, setting.value, origin});
    }
  }
  // The weakest source first: each later one overwrites, and all of them are checked.
  HOTBED_RETURN_IF_ERROR(Apply(file));
  HOTBED_RETURN_IF_ERROR(Apply(variables));
  return Apply(flags);
}

bool ConfigSchema::Load(int argc, char** argv, int* exit_code) {
  std::vector<std::pair<std::string, std::string>> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::vector<std::string> parts = absl::StrSplit(*variable, absl::MaxSplits('=', 1));
    if (parts.size() == 2) environment.emplace_back(parts[0], parts[1]);
  }
  const absl::Status status =
      Resolve(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), environment);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", program_.c_str(), std::string(status.message()).c_str());
    *exit_code = 2;
    return false;
  }
  for (const std::string& warning : warnings_) HOTBED_LOG(Warning) << warning;
  *exit_code = 0;
  switch (request_) {
    case Request::kRun:
      return true;
    case Request::kHelp:
      std::fputs(Help().c_str(), stdout);
      return false;
    case Request::kVersion:
      std::printf("%s %s\n", program_.c_str(), HOTBED_VERSION);
      return false;
    case Request::kPrintConfig:
      std::fputs(Print().c_str(), stdout);
      return false;
  }
  return false;
}

std::string ConfigSchema::Print() const {
  std::string out = absl::StrCat("# Configuration of ", program_, "\n");
  for (const auto& entry : entries_) {
    absl::StrAppend(&out, "\n# ", entry->help, " <", entry->placeholder, ">\n", entry->name, ": ",
                    entry->print(), "  # ", entry->origin, "\n");
  }
  return out;
}

std::string ConfigSchema::Help() const {
  std::string out = absl::StrCat(program_, ": ", summary_, "\n\nUsage: ", program_,
                                 " [--name=value ...]\n\nOptions (also as HOTBED_NAME in the "
                                 "environment and as keys of the YAML file):\n");
  const auto add = [&](const std::string& flag, const std::string& help) {
    absl::StrAppend(&out, "  ", flag, "\n      ", help, "\n");
  };
  for (const auto& entry : entries_) {
    add(absl::StrCat("--", entry->name, "=<", entry->placeholder, ">"),
        absl::StrCat(entry->help, " Default: ", entry->print(), "."));
  }
  add("--config=<file>", "YAML file with values; flags and environment take precedence over it.");
  add("--print-config", "Print every value and where it came from, as YAML, and stop.");
  add("--help", "Print this and stop.");
  add("--version", "Print the version and stop.");
  return out;
}

}  // namespace hotbed
