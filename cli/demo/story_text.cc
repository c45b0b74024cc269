#include "cli/demo/story_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "terminal/table_printer.h"

namespace hotbed {

std::string PhaseText(const ConservedSum::Phase& phase) {
  return absl::StrFormat("%s pushes and %s pulls, errors %d; longest push %s, longest pull %s",
                         WithCommas(phase.pushes), WithCommas(phase.pulls), phase.errors,
                         ShortSeconds(phase.longest_push_seconds),
                         ShortSeconds(phase.longest_pull_seconds));
}

nlohmann::ordered_json PhaseJson(const std::string& when, const ConservedSum::Phase& phase) {
  return {{"when", when},
          {"pushes", phase.pushes},
          {"pulls", phase.pulls},
          {"errors", phase.errors},
          {"longest_push_seconds", phase.longest_push_seconds},
          {"longest_pull_seconds", phase.longest_pull_seconds}};
}

std::string TrainingText(const nlohmann::ordered_json& report) {
  const double seconds = report.value("seconds", 1.0);
  return absl::StrFormat("%s examples in %.1f s: %s examples/s, %s rows pulled/s, %s rows pushed/s",
                         WithCommas(report.value("examples", uint64_t{0})), seconds,
                         ShortCount(report.value("examples_per_second", 0.0)),
                         ShortCount(report.value("rows_pulled", 0.0) / seconds),
                         ShortCount(report.value("rows_pushed", 0.0) / seconds));
}

std::string AucText(double auc, double linear, double best) {
  return absl::StrFormat(
      "held-out AUC %.4f; best linear %.4f, best reachable %.4f: %.0f %% of the gap closed", auc,
      linear, best, 100 * (auc - linear) / (best - linear));
}

nlohmann::ordered_json LedgerJson(const ConservedSum::Report& report) {
  return {{"pushes", report.pushes},
          {"rows", report.rows},
          {"weights_checked", report.weights_checked},
          {"retries", report.retries},
          {"longest_push_seconds", report.longest_push_seconds}};
}

std::string LookupsText(const OnlineReport& report) {
  return absl::StrFormat("%s lookups of %d rows each, one at a time: p50 %s, p99 %s, %s/s",
                         WithCommas(report.lookups), report.rows_a_lookup,
                         ShortSeconds(report.p50_seconds), ShortSeconds(report.p99_seconds),
                         ShortCount(report.lookups_per_second));
}

std::string ScoresText(const OnlineReport& report) {
  std::string scored;
  for (const OnlineReport::Scored& sample : report.samples) {
    absl::StrAppendFormat(&scored, "%s%.3f (%s)", scored.empty() ? "" : ", ", sample.probability,
                          sample.clicked ? "clicked" : "not clicked");
  }
  return absl::StrCat("scored, for instance: ", scored);
}

nlohmann::ordered_json LookupsJson(const OnlineReport& report) {
  return {{"lookups", report.lookups},
          {"rows_a_lookup", report.rows_a_lookup},
          {"p50_seconds", report.p50_seconds},
          {"p99_seconds", report.p99_seconds},
          {"lookups_per_second", report.lookups_per_second}};
}

}  // namespace hotbed
