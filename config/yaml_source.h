// Reads a flat YAML file, one `key: value` per line, into settings with line numbers. The only
// includer of yaml-cpp.
#ifndef HOTBED_CONFIG_YAML_SOURCE_H_
#define HOTBED_CONFIG_YAML_SOURCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hotbed {

struct YamlSetting {
  std::string key;
  std::string value;
  int line = 0;  // from 1
};

// In the order of the file. InvalidArgument names `path` and the line: bad syntax, a list or map as
// a value, no value, a key that occurs twice, a top level that is not a map. An empty file has no
// settings.
absl::StatusOr<std::vector<YamlSetting>> ParseYamlSettings(const std::string& path,
                                                           const std::string& text);

}  // namespace hotbed

#endif  // HOTBED_CONFIG_YAML_SOURCE_H_
