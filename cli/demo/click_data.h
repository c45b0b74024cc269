// The demo's training data: click examples in Criteo's format with a planted model, made once and
// kept for the next run of the same size and seed.
#ifndef HOTBED_CLI_DEMO_CLICK_DATA_H_
#define HOTBED_CLI_DEMO_CLICK_DATA_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "nlohmann/json.hpp"

namespace hotbed {

struct ClickDataOptions {
  uint64_t rows = 0;
  uint64_t seed = 0;
  std::string keep_dir;  // for the finished file
  std::string
      partial_dir;  // where it is written: an interrupted run leaves no partial file in keep_dir
};

struct ClickData {
  std::string path;
  bool is_new = false;
  nlohmann::ordered_json about;  // rows, bytes, positive_fraction, auc_best, auc_best_linear
};

// Progress goes to `progress_out`. Unavailable: the files could not be written.
absl::StatusOr<ClickData> MakeClickData(const ClickDataOptions& options, std::ostream* progress_out,
                                        const Clock* clock);

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_CLICK_DATA_H_
