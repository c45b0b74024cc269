// Acts as an inference service for a model trained by hotbed-train-ctr: looks up the rows of one
// example at a time and scores them. Blocking, one call at a time.
#ifndef HOTBED_CLI_DEMO_ONLINE_LOOKUPS_H_
#define HOTBED_CLI_DEMO_ONLINE_LOOKUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"

namespace hotbed {

struct OnlineReport {
  uint64_t lookups = 0;
  uint64_t rows_a_lookup = 0;
  double p50_seconds = 0;
  double p99_seconds = 0;
  double lookups_per_second = 0;
  struct Scored {
    double probability = 0;
    bool clicked = false;
  };
  std::vector<Scored> samples;  // the first few
};

// Scores the first `examples` lines of a Criteo file (TSV). `table_prefix` as given to the trainer.
absl::StatusOr<OnlineReport> LookUpOnline(const std::string& target, const std::string& criteo_path,
                                          const std::string& table_prefix, uint64_t examples,
                                          const Clock* clock);

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_ONLINE_LOOKUPS_H_
