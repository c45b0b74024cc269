#include "cli/serving/served_copy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hotbed {

std::vector<ServedCopy> CopiesOf(const v1::ServedTable& table, const v1::ServingMap& map) {
  std::vector<ServedCopy> copies;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    ServedCopy copy{.server = name, .part = ServedPartAt(table, i), .state = "away"};
    const auto server = std::find_if(map.servers().begin(), map.servers().end(),
                                     [&](const auto& one) { return one.name() == name; });
    if (server != map.servers().end()) {
      const auto replica =
          std::find_if(server->replicas().begin(), server->replicas().end(), [&](const auto& one) {
            return one.table() == table.table() && ServedPartOf(one) == copy.part;
          });
      const bool has = replica != server->replicas().end();
      if (has) copy.said = *replica;
      if (copy.said.ready()) copy.age_ms = copy.said.age_ms() + server->silent_ms();
      if (server->alive()) copy.state = !has ? "ordered" : copy.said.ready() ? "ready" : "loading";
    }
    copies.push_back(std::move(copy));
  }
  return copies;
}

std::string VersionName(const v1::ServingMap& map, uint64_t number) {
  const auto version = std::find_if(map.versions().begin(), map.versions().end(),
                                    [number](const auto& one) { return one.number() == number; });
  return version == map.versions().end() ? absl::StrCat("number ", number) : version->name();
}

}  // namespace hotbed
