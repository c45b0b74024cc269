// Events, times and the state of rebalancing as text and JSON. Pure functions.
#ifndef HOTBED_CLI_SHARDS_EVENT_TEXT_H_
#define HOTBED_CLI_SHARDS_EVENT_TEXT_H_

#include <cstdint>
#include <string>

#include "nlohmann/json.hpp"
#include "proto/control.pb.h"

namespace hotbed {

// "2026-11-22 05:51:22.123" in the time zone of this machine; "-" for 0.
std::string TimeText(int64_t unix_ms);

// One line: time, kind, text.
std::string EventLine(const v1::ClusterEvent& event);
nlohmann::ordered_json EventJson(const v1::ClusterEvent& event);

// "on; the busiest server has 1.31 times the mean load; last: ..., not before ..."
std::string RebalanceText(const v1::RebalanceStatus& status);
nlohmann::ordered_json RebalanceJson(const v1::RebalanceStatus& status);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_EVENT_TEXT_H_
