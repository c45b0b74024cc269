// The demo's numbers as text and as JSON. Pure functions.
#ifndef HOTBED_CLI_DEMO_STORY_TEXT_H_
#define HOTBED_CLI_DEMO_STORY_TEXT_H_

#include <string>

#include "cli/demo/conserved_sum.h"
#include "cli/demo/online_lookups.h"
#include "nlohmann/json.hpp"

namespace hotbed {

// "1,590 pushes and 1,590 pulls, errors 0; longest push 12.3 ms, longest pull 2.34 ms"
std::string PhaseText(const ConservedSum::Phase& phase);
nlohmann::ordered_json PhaseJson(const std::string& when, const ConservedSum::Phase& phase);

// From the trainer's JSON: examples and rows per second.
std::string TrainingText(const nlohmann::ordered_json& report);

// The share of the gap between the best linear and the best reachable model that was closed.
std::string AucText(double auc, double linear, double best);
nlohmann::ordered_json LedgerJson(const ConservedSum::Report& report);

std::string LookupsText(const OnlineReport& report);
// The first scores, with the clicks.
std::string ScoresText(const OnlineReport& report);
nlohmann::ordered_json LookupsJson(const OnlineReport& report);

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_STORY_TEXT_H_
