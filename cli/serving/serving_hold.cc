#include "cli/serving/serving_hold.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/serving/served_copy.h"

namespace hotbed {
namespace {

std::string VersionName(uint64_t number, const v1::ServingMap& map) {
  const auto version = std::find_if(map.versions().begin(), map.versions().end(),
                                    [number](const auto& one) { return one.number() == number; });
  return version == map.versions().end() ? absl::StrCat("number ", number) : version->name();
}

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
                          VersionName(version.number(), map));
    }
  }
  return "";
}

}  // namespace

std::optional<ServingHold> HoldOfServing(const std::string& server, const v1::ServingMap& map) {
  const bool known = std::any_of(map.servers().begin(), map.servers().end(),
                                 [&](const auto& one) { return one.name() == server; });
  ServingHold hold;
  if (!known) {
    // A coordinator that begins to lead hears of copies within a second.
    for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
      if (!ServedPartOn(map.tables(i), server).has_value()) continue;
      if (hold.missed++ > 0) continue;
      hold.why = absl::StrCat("of table ", map.specs(i).name(), ", ", server,
                              " has not reported to this coordinator yet");
    }
    return hold.missed > 0 ? std::optional<ServingHold>(hold) : std::nullopt;
  }
  for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
    const std::vector<ServedCopy> copies = CopiesOf(map.tables(i), map);
    const auto leaving = std::find_if(copies.begin(), copies.end(), [&](const ServedCopy& copy) {
      return copy.server == server && copy.state == "ready";
    });
    if (leaving == copies.end()) continue;
    uint64_t others = 0;
    bool one_can = false;
    std::string why;
    for (const ServedCopy& copy : copies) {
      if (copy.server == server || copy.part != leaving->part) continue;
      ++others;
      const std::string why_not = WhyItCannotAnswerFor(copy, *leaving, map);
      one_can = one_can || why_not.empty();
      if (why.empty()) why = why_not;
    }
    if (others == 0) {
      ++hold.alone;
    } else if (one_can) {
      ++hold.answered;
    } else if (hold.missed++ == 0) {
      hold.why = absl::StrCat("of table ", map.specs(i).name(), ", ", why);
    }
  }
  return hold;
}

}  // namespace hotbed
