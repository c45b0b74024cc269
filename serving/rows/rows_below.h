// The rows of a copy that memory has no room for, as readers see them. Thread-safe.
#ifndef HOTBED_SERVING_ROWS_ROWS_BELOW_H_
#define HOTBED_SERVING_ROWS_ROWS_BELOW_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace hotbed {

class RowsBelow {
 public:
  virtual ~RowsBelow() = default;
  // False: memory has all rows. It turns true before memory gives the first row up, so a reader
  // that misses a row there asks afterwards.
  virtual bool needed() const = 0;

  using Visit = std::function<void(size_t at, uint64_t id, const uint8_t* row)>;
  // Calls `visit` for each of the ids that has a row, with its place among them.
  virtual absl::Status Read(absl::Span<const uint64_t> ids, const Visit& visit) const = 0;
  // All rows, in the order of their ids and of one moment, until `visit` returns false.
  virtual absl::Status Scan(
      const std::function<bool(uint64_t id, const uint8_t* row)>& visit) const = 0;
  // Some row was found to be damaged: all must be read from elsewhere again.
  virtual bool damaged() const = 0;
  virtual uint64_t rows() const = 0;
  virtual uint64_t bytes() const = 0;  // of files
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_ROWS_BELOW_H_
