// What the demo says of its numbers, and their JSON. Pure functions.
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

// Of the trainer's JSON: examples and rows a second.
std::string TrainingText(const nlohmann::ordered_json& report);

// How much of the way from the best linear model to the best reachable one.
std::string AucText(double auc, double linear, double best);
nlohmann::ordered_json LedgerJson(const ConservedSum::Report& report);

std::string LookupsText(const OnlineReport& report);
// The first scores beside what was clicked.
std::string ScoresText(const OnlineReport& report);
nlohmann::ordered_json LookupsJson(const OnlineReport& report);

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_STORY_TEXT_H_
