// Writes the rows of a shard into the arrays of an export (docs/arrays.md). Used by one thread.
#ifndef HOTBED_SERVER_EXPORT_ARRAY_SINK_H_
#define HOTBED_SERVER_EXPORT_ARRAY_SINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/array_file.h"
#include "checkpoint/array_rows.h"
#include "checkpoint/write_fence.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "proto/checkpoint.pb.h"
#include "server/host/row_files.h"

namespace hotbed {

class ArraySink : public RowSink {
 public:
  // Asked before so many bytes are written; it may wait.
  using MayWrite = std::function<absl::Status(uint64_t bytes)>;
  // For a shard of a bounded table, which begins at `range`. The request names the arrays.
  static absl::StatusOr<std::unique_ptr<ArraySink>> Open(const v1::BeginSaveRequest& request,
                                                         const TableSpec& table,
                                                         const ShardRange& range,
                                                         MayWrite may_write);

  absl::Status BeginPass(uint64_t bytes) override;
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) override;
  absl::Status Finish();

 private:
  ArraySink(const TableSpec& table, MayWrite may_write)
      : table_(table), may_write_(std::move(may_write)) {}
  absl::Status Write(uint64_t bytes, absl::FunctionRef<absl::Status()> write);

  const TableSpec table_;
  const MayWrite may_write_;
  std::unique_ptr<ArrayFile> weights_;
  std::unique_ptr<ArrayFile> state_;
  std::unique_ptr<WriteFence> fence_;
  std::optional<ArrayRowWriter> writer_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_ARRAY_SINK_H_
