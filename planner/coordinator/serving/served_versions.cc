#include "planner/coordinator/serving/served_versions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "planner/coordinator/state/keys.h"

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

namespace {

absl::Status CheckWord(const std::string& name, const char* thing) {
  const bool word = std::all_of(name.begin(), name.end(),
                                [](char c) { return absl::ascii_isgraph(c) && c != '/'; });
  if (name.empty() || name.size() > kVersionNameBytesMax || !word || name[0] == '.') {
    return absl::InvalidArgumentError(
        absl::StrCat("name \"", absl::CEscape(name.substr(0, 80)), "\" of a ", thing, " has ",
                     name.size(), " bytes, allowed: 1..", kVersionNameBytesMax,
                     " printable characters without spaces and '/', and no '.' at the begin"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModelName(const std::string& name) { return CheckWord(name, "model"); }

absl::Status CheckVersionName(const std::string& name) {
  HOTBED_RETURN_IF_ERROR(CheckWord(name, "version"));
  if (name == "latest" || name == "current") {
    return absl::InvalidArgumentError(
        absl::StrCat("a version cannot be named ", name, ": readers ask for other rows by that"));
  }
  return absl::OkStatus();
}

std::vector<std::string> ModelsOf(const ServedVersions& versions) {
  std::set<std::string> models;
  for (const auto& [number, version] : versions) models.insert(version.model());
  return {models.begin(), models.end()};
}

const v1::ServedVersion* CurrentOf(const ServedVersions& versions, const VersionChoices& choices,
                                   const std::string& model) {
  const auto choice = choices.find(model);
  if (choice == choices.end()) return nullptr;
  const auto current = versions.find(choice->second.current());
  return current == versions.end() ? nullptr : &current->second;
}

std::set<uint64_t> CurrentVersions(const VersionChoices& choices) {
  std::set<uint64_t> current;
  for (const auto& [model, choice] : choices) current.insert(choice.current());
  return current;
}

void TakeTablesFromOthers(const v1::ServedVersion& version, ServedVersions* versions) {
  const auto taken = [&](uint32_t table) { return HasServedTable(version, table); };
  for (auto at = versions->begin(); at != versions->end();) {
    v1::ServedVersion& other = at->second;
    if (other.model() == version.model()) {
      ++at;
      continue;
    }
    auto* const tables = other.mutable_tables();
    tables->erase(std::remove_if(tables->begin(), tables->end(), taken), tables->end());
    at = tables->empty() ? versions->erase(at) : std::next(at);
  }
}

void DropChoices(const ServedVersions& versions, VersionChoices* choices) {
  const std::vector<std::string> models = ModelsOf(versions);
  for (auto at = choices->begin(); at != choices->end();) {
    v1::VersionChoice& choice = at->second;
    if (!versions.contains(choice.current())) choice.set_current(0);
    if (!versions.contains(choice.before())) choice.set_before(0);
    if (!versions.contains(choice.target())) {
      choice.set_target(choice.current());
      choice.set_pinned(false);
    }
    const bool drop = at->first != keys::kDefaultModel &&
                      !std::binary_search(models.begin(), models.end(), at->first);
    at = drop ? choices->erase(at) : std::next(at);
  }
}

std::vector<uint64_t> VersionsToKeep(const ServedVersions& versions,
                                     const VersionChoices& choices) {
  std::set<uint64_t> wanted;
  for (const auto& [model, choice] : choices) {
    wanted.insert({choice.current(), choice.before(), choice.target()});
  }
  std::map<std::string, uint64_t> newest;
  for (const auto& [number, version] : versions) newest[version.model()] = number;
  for (const auto& [model, number] : newest) wanted.insert(number);
  std::vector<uint64_t> kept;
  for (const auto& [number, version] : versions) {
    if (wanted.contains(number)) kept.push_back(number);
  }
  return kept;
}

void AddVersions(const ServedVersions& versions, const VersionChoices& choices,
                 v1::ServingOrders* orders) {
  for (const uint64_t number : VersionsToKeep(versions, choices)) {
    const v1::ServedVersion& version = versions.at(number);
    const bool has_table =
        std::any_of(orders->tables().begin(), orders->tables().end(),
                    [&](const auto& table) { return HasServedTable(version, table.table()); }) ||
        std::any_of(orders->beside().begin(), orders->beside().end(), [&](const auto& copy) {
          return HasServedTable(version, copy.table().table());
        });
    if (!has_table) continue;
    *orders->add_versions() = version;
    if (&version == CurrentOf(versions, choices, version.model())) orders->add_current(number);
  }
}

void AddVersions(const ServedVersions& versions, const VersionChoices& choices,
                 v1::ServingMap* map) {
  for (const auto& [number, version] : versions) *map->add_versions() = version;
  for (const auto& [model, choice] : choices) {
    *map->add_choices() = choice;
    if (model == keys::kDefaultModel) *map->mutable_choice() = choice;
  }
  for (const uint64_t number : VersionsToKeep(versions, choices)) map->add_kept(number);
}

}  // namespace hotbed
