// Histograms of ids: how often each id occurs, measured from files of ids, and stored as an .npy
// file of one whole number per id.
#ifndef HOTBED_CLI_TABLES_ID_HISTOGRAM_H_
#define HOTBED_CLI_TABLES_ID_HISTOGRAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hotbed {

struct IdHistogram {
  std::vector<uint64_t> counts;  // by id
  uint64_t ids = 0;              // that were read
  uint64_t outside = 0;          // of these, not in 0..counts.size()-1
};

// Adds the ids of a file: an .npy file of whole numbers of 64 bits and any shape of one or two
// dimensions; otherwise text, in which each whole number between blanks, commas or line ends is an
// id. `counts` has its size already. `progress`: bytes done, of all. InvalidArgument names the file
// and the place of what is no id; NotFound.
absl::Status CountIds(const std::string& path, IdHistogram* histogram,
                      const std::function<void(uint64_t, uint64_t)>& progress);

// InvalidArgument: not whole numbers in one dimension, or a negative one.
absl::StatusOr<std::vector<uint64_t>> ReadHistogram(const std::string& path);
// AlreadyExists; ResourceExhausted.
absl::Status WriteHistogram(const std::string& path, absl::Span<const uint64_t> counts);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_ID_HISTOGRAM_H_
