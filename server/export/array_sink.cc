#include "server/export/array_sink.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {

absl::StatusOr<std::unique_ptr<ArraySink>> ArraySink::Open(const v1::BeginSaveRequest& request,
                                                           const TableSpec& table,
                                                           const ShardRange& range,
                                                           MayWrite may_write) {
  const v1::TableArrays& arrays = request.arrays();
  if (table.hashed || arrays.rows() != table.rows) {
    return absl::InvalidArgumentError(absl::StrCat("arrays of ", arrays.rows(),
                                                   " rows are not those of table \"", table.name,
                                                   "\"; allowed: a bounded table of as many"));
  }
  const auto path = [&request](const std::string& file) {
    return absl::StrCat(request.directory(), "/", file);
  };
  std::unique_ptr<ArraySink> sink(new ArraySink(table, std::move(may_write)));
  HOTBED_ASSIGN_OR_RETURN(sink->fence_, WriteFence::Open(path(request.fence())));
  HOTBED_ASSIGN_OR_RETURN(sink->weights_,
                          ArrayFile::Open(path(arrays.weights().path()), /*writes=*/true));
  RowArrays to = {sink->weights_.get(), arrays.weights().offset(),
                  static_cast<WeightType>(arrays.weights().type()), nullptr, 0};
  if (arrays.has_state()) {
    HOTBED_ASSIGN_OR_RETURN(sink->state_, ArrayFile::Open(path(arrays.state().path()), true));
    to.state = sink->state_.get();
    to.state_at = arrays.state().offset();
  }
  sink->writer_.emplace(
      &sink->table_, ArraySlice(sink->table_, range.column_first, range.column_limit), to,
      range.first, range.limit, [](uint64_t row) { return row; },
      [sink = sink.get()](uint64_t bytes, absl::FunctionRef<absl::Status()> write) {
        return sink->Write(bytes, write);
      });
  return sink;
}

// On a network file system the bytes must be at its server before the fence lets others go on: this
// machine would send them later, over what the others have written.
absl::Status ArraySink::Write(uint64_t bytes, absl::FunctionRef<absl::Status()> write) {
  HOTBED_RETURN_IF_ERROR(may_write_(bytes));
  return fence_->Run([&]() -> absl::Status {
    HOTBED_RETURN_IF_ERROR(write());
    if (!weights_->remote()) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(weights_->Sync());
    return state_ == nullptr ? absl::OkStatus() : state_->Sync();
  });
}

absl::Status ArraySink::BeginPass(uint64_t /*bytes*/) { return writer_->BeginPass(); }

absl::Status ArraySink::Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) {
  const size_t bytes = payloads.size() / ids.size();
  for (size_t k = 0; k < ids.size(); ++k) {
    HOTBED_RETURN_IF_ERROR(writer_->Put(ids[k], payloads.data() + k * bytes));
  }
  return absl::OkStatus();
}

absl::Status ArraySink::Finish() {
  HOTBED_RETURN_IF_ERROR(writer_->Finish());
  HOTBED_RETURN_IF_ERROR(weights_->Sync());
  return state_ == nullptr ? absl::OkStatus() : state_->Sync();
}

}  // namespace hotbed
