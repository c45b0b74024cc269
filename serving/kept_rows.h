// The rows of one copy on disk, and how far they have followed their table: what a serving server
// goes on from after a restart. Confined to the thread that follows; readers look at rows().
#ifndef HOTBED_SERVING_KEPT_ROWS_H_
#define HOTBED_SERVING_KEPT_ROWS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hotbed/changes.h"
#include "proto/served_part.h"
#include "serving/rows/disk_rows.h"

namespace hotbed {

class KeptRows {
 public:
  // As DiskRows::Open; rows of a table of another cluster are others, too.
  static absl::StatusOr<std::unique_ptr<KeptRows>> Open(const std::string& dir,
                                                        const ServedPlaces& places,
                                                        uint32_t row_bytes,
                                                        const std::string& cluster,
                                                        const std::function<bool()>& stops);

  const std::shared_ptr<DiskRows>& rows() const { return rows_; }
  // Where a stream goes on; empty: the rows are not whole, so that all must come again.
  ChangePositions Positions() const;
  // A stream begins from Positions(), the first one or after an error.
  absl::Status BeginStream();
  // The rows of the range come again; those that do not, go at the end.
  absl::Status BeginAgain(const ChangedRange& range, const ChangePositions& positions);
  // Writes what was put and deleted in rows(), as of `positions`.
  absl::Status Commit(const ChangePositions& positions);
  // All rows of all parts were told.
  absl::Status EndAgain(const ChangePositions& positions);
  // Makes durable what was committed, every 10 s.
  absl::Status FlushIfDue(int64_t now_ns);

 private:
  struct Again {
    ChangedRange range;
    uint32_t age = 0;  // rows of the range that are older did not come again
  };
  KeptRows(const ServedPlaces& places, std::unique_ptr<DiskRows> rows)
      : places_(places), rows_(std::move(rows)) {}
  uint32_t LeastAge(uint64_t id) const;

  const ServedPlaces places_;
  const std::shared_ptr<DiskRows> rows_;
  std::vector<Again> again_;
  bool whole_ = false;
  int64_t flushed_ns_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_KEPT_ROWS_H_
