#include "planner/coordinator/serving/served_versions.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hotbed {
namespace {

constexpr size_t kVersionNameBytesMax = 100;
constexpr size_t kNamesShown = 10;  // the newest ones

}  // namespace

const v1::ServedVersion* FindVersion(const ServedVersions& versions, const std::string& name) {
  const auto found = std::find_if(versions.begin(), versions.end(),
                                  [&](const auto& one) { return one.second.name() == name; });
  return found == versions.end() ? nullptr : &found->second;
}

absl::Status NoSuchVersion(const ServedVersions& versions, const std::string& name) {
  std::vector<std::string> names;
  for (auto at = versions.rbegin(); at != versions.rend() && names.size() < kNamesShown; ++at) {
    names.push_back(at->second.name());
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no version \"", absl::CEscape(name.substr(0, 80)), "\"; ",
      names.empty() ? std::string("none is published yet ('hotbed publish')")
                    : absl::StrCat("there are: ", absl::StrJoin(names, ", "),
                                   names.size() < versions.size() ? ", and older ones" : "")));
}

absl::Status CheckVersionName(const std::string& name) {
  const bool word = std::all_of(name.begin(), name.end(),
                                [](char c) { return absl::ascii_isgraph(c) && c != '/'; });
  if (name.empty() || name.size() > kVersionNameBytesMax || !word || name[0] == '.') {
    return absl::InvalidArgumentError(
        absl::StrCat("name \"", absl::CEscape(name.substr(0, 80)), "\" of a version has ",
                     name.size(), " bytes, allowed: 1..", kVersionNameBytesMax,
                     " printable characters without spaces and '/', and no '.' at the begin"));
  }
  if (name == "latest" || name == "current") {
    return absl::InvalidArgumentError(
        absl::StrCat("a version cannot be named ", name, ": readers ask for other rows by that"));
  }
  return absl::OkStatus();
}

std::vector<uint64_t> VersionsToKeep(const ServedVersions& versions,
                                     const v1::VersionChoice& choice) {
  std::vector<uint64_t> kept;
  for (const auto& [number, version] : versions) {
    if (number == choice.current() || number == choice.before() || number == choice.target() ||
        number == versions.rbegin()->first) {
      kept.push_back(number);
    }
  }
  return kept;
}

void AddVersions(const ServedVersions& versions, const v1::VersionChoice& choice,
                 v1::ServingOrders* orders) {
  orders->set_current(choice.current());
  for (const uint64_t number : VersionsToKeep(versions, choice)) {
    const v1::ServedVersion& version = versions.at(number);
    const auto has = [&](const v1::ServedTable& table) {
      return std::find(version.tables().begin(), version.tables().end(), table.table()) !=
             version.tables().end();
    };
    if (std::any_of(orders->tables().begin(), orders->tables().end(), has)) {
      *orders->add_versions() = version;
    }
  }
}

void AddVersions(const ServedVersions& versions, const v1::VersionChoice& choice,
                 v1::ServingMap* map) {
  for (const auto& [number, version] : versions) *map->add_versions() = version;
  *map->mutable_choice() = choice;
  for (const uint64_t number : VersionsToKeep(versions, choice)) map->add_kept(number);
}

}  // namespace hotbed
