#include "cli/shards/event_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace hotbed {

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

std::string EventLine(const v1::ClusterEvent& event) {
  std::string line =
      absl::StrFormat("%s  %-12s  %s", TimeText(event.unix_ms()), event.kind(), event.text());
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = ' ';  // a name must not move the cursor
  }
  return line;
}

nlohmann::ordered_json EventJson(const v1::ClusterEvent& event) {
  return {{"number", event.number()}, {"unix_ms", event.unix_ms()}, {"kind", event.kind()},
          {"text", event.text()},     {"shard", event.shard()},     {"server", event.server()}};
}

std::string RebalanceText(const v1::RebalanceStatus& status) {
  std::string text = status.on() ? "on" : "off: 'hotbed rebalance on'";
  if (status.imbalance() > 0) {
    absl::StrAppend(&text, absl::StrFormat("; the busiest server has %.2f times the mean load",
                                           status.imbalance()));
  }
  if (!status.last_reason().empty()) {
    absl::StrAppend(&text, "; last: ", status.last_reason());
    if (status.last_unix_ms() != 0) {
      absl::StrAppend(&text, " (", TimeText(status.last_unix_ms()), ")");
    }
  }
  if (status.on() && status.next_unix_ms() != 0) {
    absl::StrAppend(&text, "; not before ", TimeText(status.next_unix_ms()));
  }
  return text;
}

nlohmann::ordered_json RebalanceJson(const v1::RebalanceStatus& status) {
  return {{"on", status.on()},
          {"imbalance", status.imbalance()},
          {"last_reason", status.last_reason()},
          {"last_unix_ms", status.last_unix_ms()},
          {"next_unix_ms", status.next_unix_ms()}};
}

}  // namespace hotbed
