// Which rows of a checkpoint's file are not there in the end, for a reader of rows: those that were
// deleted in a later pass, and candidates for admission. A file without optimizer state has no
// candidates (server/export/save_jobs.h).
#ifndef HOTBED_CHECKPOINT_GONE_ROWS_H_
#define HOTBED_CHECKPOINT_GONE_ROWS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "checkpoint/rows_file.h"
#include "common/tables/table_spec.h"

namespace hotbed {

class GoneRows {
 public:
  // `table`: as it was saved. Reads the ids of deleted rows, and the later passes of a table with
  // candidates.
  static absl::StatusOr<GoneRows> Read(const TableSpec& table, RowsFileReader* file);

  // `payload`: the row as it is in a block of `pass`.
  bool Has(uint64_t id, uint32_t pass, const uint8_t* payload) const;
  bool any_deleted() const { return any_deleted_; }

 private:
  bool IsCandidate(const uint8_t* payload) const;

  AdmissionParams admission_;
  uint32_t payload_bytes_ = 0;
  bool any_deleted_ = false;
  absl::flat_hash_map<uint64_t, uint32_t> gone_in_;  // id -> the last pass in which it is gone
};

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_GONE_ROWS_H_
