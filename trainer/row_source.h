// The rows that a trainer reads and updates: in a Hotbed cluster, or in arrays of this process; and
// those that only evaluation reads.
#ifndef HOTBED_TRAINER_ROW_SOURCE_H_
#define HOTBED_TRAINER_ROW_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hotbed/client.h"
#include "hotbed/look_ahead.h"

namespace hotbed {

// One field of a batch and the table that it reads.
struct RowColumn {
  int table = 0;  // index into the tables that the source was opened with
  absl::Span<const uint64_t> ids;
  float* rows = nullptr;             // pull: ids.size() x dim floats
  const float* gradients = nullptr;  // push
};

// Both are confined to one thread. Buffers belong to them until the future is ready.
class RowReader {
 public:
  virtual ~RowReader() = default;
  // Reads as inference does, for evaluation.
  virtual Future<absl::Status> Lookup(const std::vector<RowColumn>& columns) = 0;
};

class RowSource : public RowReader {
 public:
  virtual Future<absl::Status> Pull(const std::vector<RowColumn>& columns) = 0;
  virtual Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                                  float learning_rate) = 0;
  // Brings the rows of the oldest Pull that was not taken up to date, once its future is ready.
  // `columns` are those of the Pull.
  virtual absl::Status Take(const std::vector<RowColumn>&) { return absl::OkStatus(); }
  virtual LookAheadStats look_ahead() const { return {}; }
  // The trainers of all processes that train these tables now, as far as known; 0: not known.
  virtual uint64_t Trainers() { return 0; }
  // Unique rows pulled and pushed so far.
  virtual uint64_t rows_pulled() const = 0;
  virtual uint64_t rows_pushed() const = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TRAINER_ROW_SOURCE_H_
