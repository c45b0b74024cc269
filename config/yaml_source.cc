#include "config/yaml_source.h"

#include <yaml-cpp/yaml.h>

#include <map>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

absl::Status Bad(const std::string& path, int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, " line ", line, ": ", what));
}

const char* KindOf(const YAML::Node& node) {
  return node.IsSequence() ? "a list" : node.IsMap() ? "a map" : "no value";
}

absl::StatusOr<std::vector<YamlSetting>> Read(const std::string& path, const YAML::Node& root) {
  std::vector<YamlSetting> settings;
  if (root.IsNull()) return settings;
  if (!root.IsMap()) {
    return Bad(path, root.Mark().line + 1, "expected lines of the form `key: value`");
  }
  std::map<std::string, int> lines;
  for (const auto& pair : root) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar()) return Bad(path, line, "a key must be a word");
    const std::string& key = pair.first.Scalar();
    if (!pair.second.IsScalar()) {
      return Bad(path, line,
                 absl::StrCat(key, " has ", KindOf(pair.second), ", expected one value"));
    }
    const auto [first, is_new] = lines.emplace(key, line);
    if (!is_new) {
      return Bad(path, line, absl::StrCat(key, " occurs twice, first in line ", first->second));
    }
    settings.push_back({key, pair.second.Scalar(), line});
  }
  return settings;
}

}  // namespace

absl::StatusOr<std::vector<YamlSetting>> ParseYamlSettings(const std::string& path,
                                                           const std::string& text) {
  try {  // yaml-cpp reports by exceptions
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return std::vector<YamlSetting>();
    if (documents.size() > 1) {
      return Bad(path, documents[1].Mark().line + 1,
                 "a second document begins (after `---`); put all settings into one");
    }
    return Read(path, documents[0]);
  } catch (const YAML::Exception& error) {
    return Bad(path, error.mark.line + 1, error.msg);
  }
}

}  // namespace hotbed
