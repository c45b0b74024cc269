#include "cli/serving/serving_hold.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/serving/served_copy.h"

namespace hotbed {
namespace {

// Empty: it can.
std::string WhyItCannotAnswerFor(const ServedCopy& copy, const ServedCopy& leaving,
                                 const v1::ServingMap& map) {
  if (copy.state != "ready") return absl::StrCat("its copy on ", copy.server, " is ", copy.state);
  const auto& has = copy.said.versions();
  for (const v1::VersionReport& version : leaving.said.versions()) {
    if (!version.held()) continue;
    const bool held = std::any_of(has.begin(), has.end(), [&](const v1::VersionReport& one) {
      return one.number() == version.number() && one.held();
    });
    if (!held) {
      return absl::StrCat("its copy on ", copy.server, " does not hold version ",
                          VersionName(map, version.number()));
    }
  }
  return "";
}

// A cut of a table that readers may ask.
struct AskedCut {
  v1::ServedTable table;
  bool leaves = false;  // in some seconds
};

std::vector<AskedCut> AskedCutsOf(const v1::ServedTable& table) {
  std::vector<AskedCut> cuts = {{.table = table}};
  if (table.beside().leaves()) cuts.push_back({.table = BesideOf(table), .leaves = true});
  return cuts;
}

// Counts the copy that the server has of this cut, if it answers.
void Count(const std::string& server, const AskedCut& cut, const std::string& name,
           const v1::ServingMap& map, ServingHold* hold) {
  const std::vector<ServedCopy> copies = CopiesOf(cut.table, map);
  const auto leaving = std::find_if(copies.begin(), copies.end(), [&](const ServedCopy& copy) {
    return copy.server == server && copy.state == "ready";
  });
  if (leaving == copies.end()) return;
  uint64_t others = 0;
  bool one_can = false;
  std::string why = cut.leaves ? "readers may ask for its former parts some seconds more" : "";
  for (const ServedCopy& copy : copies) {
    if (copy.server == server || copy.part != leaving->part) continue;
    ++others;
    const std::string why_not = WhyItCannotAnswerFor(copy, *leaving, map);
    one_can = one_can || why_not.empty();
    if (why.empty()) why = why_not;
  }
  if (one_can) {
    ++hold->answered;
  } else if (others == 0 && !cut.leaves) {
    ++hold->alone;
  } else if (hold->missed++ == 0) {
    hold->why = absl::StrCat("of table ", name, ", ", why);
  }
}

}  // namespace

std::optional<ServingHold> HoldOfServing(const std::string& server, const v1::ServingMap& map) {
  const bool known = std::any_of(map.servers().begin(), map.servers().end(),
                                 [&](const auto& one) { return one.name() == server; });
  ServingHold hold;
  for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
    const v1::ServedTable& table = map.tables(i);
    const std::string& name = map.specs(i).name();
    for (const AskedCut& cut : AskedCutsOf(table)) {
      if (!ServedPartOn(cut.table, server).has_value()) continue;
      if (known) {
        Count(server, cut, name, map, &hold);
      } else if (hold.missed++ == 0) {
        // A coordinator that begins to lead hears of copies within a second.
        hold.why = absl::StrCat("of table ", name, ", ", server,
                                " has not reported to this coordinator yet");
      }
    }
    if (table.has_beside() && !table.beside().leaves() &&
        ServedPartOn(BesideOf(table), server).has_value()) {
      ++hold.coming;
    }
  }
  return known || hold.missed > 0 ? std::optional<ServingHold>(hold) : std::nullopt;
}

}  // namespace hotbed
