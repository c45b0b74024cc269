#include "cli/shards/find_server.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "config/config.h"

namespace hotbed {

absl::StatusOr<v1::ServerInfo> FindServer(const v1::ClusterMap& map, const std::string& word) {
  const v1::ServerInfo* found = nullptr;
  std::vector<std::string> known;
  for (const v1::ServerInfo& server : map.servers()) {
    known.push_back(server.name());
    if (server.name() == word && (found == nullptr || server.live())) found = &server;
  }
  uint64_t number = 0;
  if (found == nullptr && absl::SimpleAtoi(word, &number)) {
    for (const v1::ServerInfo& server : map.servers()) {
      if (server.server() == number) found = &server;
    }
  }
  if (found != nullptr) return *found;
  const std::string nearest = NearestWord(word, known);
  return absl::NotFoundError(absl::StrCat(
      "there is no server '", word, "'",
      nearest.empty() ? absl::StrCat(" (", known.size(), " servers: see 'hotbed status')")
                      : absl::StrCat("; did you mean '", nearest, "'?")));
}

}  // namespace hotbed
