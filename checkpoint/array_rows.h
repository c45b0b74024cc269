// Rows of a shard to and from the arrays of a table (checkpoint/array_file.h): weights, and the
// optimizer state as it lies in a row. Column slices lie side by side. Thread-compatible.
#ifndef HOTBED_CHECKPOINT_ARRAY_ROWS_H_
#define HOTBED_CHECKPOINT_ARRAY_ROWS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "checkpoint/array_file.h"
#include "common/tables/table_spec.h"

namespace hotbed {

// The arrays of a table. Their files outlive the users.
struct RowArrays {
  ArrayFile* weights = nullptr;
  uint64_t weights_at = 0;  // offset of row 0
  WeightType type = WeightType::kFp32;
  ArrayFile* state = nullptr;  // null: none
  uint64_t state_at = 0;
};

// Columns [first, limit) of a table, and their place in its rows of state.
struct ArraySlice {
  ArraySlice(const TableSpec& spec, uint32_t first, uint32_t limit);
  uint32_t column_first = 0;
  uint32_t columns = 0;
  uint32_t state_first = 0;  // bytes
  uint32_t state_bytes = 0;
};

class ArrayRowWriter {
 public:
  // The id of a row of the arrays.
  using IdOf = std::function<uint64_t(uint64_t row)>;
  // Runs a write of so many bytes, or says why not.
  using Guard =
      std::function<absl::Status(uint64_t bytes, absl::FunctionRef<absl::Status()> write)>;

  // `spec` outlives it. The rows of the shard are [first_row, limit_row). Null `guard`: always.
  ArrayRowWriter(const TableSpec* spec, const ArraySlice& slice, const RowArrays& arrays,
                 uint64_t first_row, uint64_t limit_row, IdOf id_of, Guard guard);

  // A pass begins: its rows replace those of earlier passes. Rows that the first one leaves out get
  // their first values.
  absl::Status BeginPass();
  // Rows ascend. `payload` has weights and state; without a state array, weights suffice. The row
  // of the padding id becomes zeros.
  absl::Status Put(uint64_t row, const uint8_t* payload);
  // The last pass has ended.
  absl::Status Finish();

 private:
  // The next row, at the end of the buffer.
  uint8_t* Next(uint64_t row);
  void PutFirst(uint64_t row);
  absl::Status FillTo(uint64_t row);
  absl::Status Flush();
  absl::Status WriteBuffer();

  const TableSpec& spec_;
  const ArraySlice slice_;
  const RowArrays arrays_;
  const IdOf id_of_;
  const Guard guard_;
  const uint32_t weight_bytes_;  // of a row of the slice, in the array
  const uint64_t limit_row_;
  uint32_t pass_ = 0;
  uint64_t filled_to_;  // rows below this one were written
  uint64_t buffered_row_ = 0;
  uint64_t buffered_ = 0;  // rows
  std::vector<uint8_t> weights_;
  std::vector<uint8_t> state_;
  std::vector<float> first_;
  std::vector<uint8_t> first_state_;
};

class ArrayRowReader {
 public:
  // `spec`: the table as it is to be; outlives it.
  ArrayRowReader(const TableSpec* spec, const ArraySlice& slice, const RowArrays& arrays);
  uint32_t payload_bytes() const { return weight_bytes_ + slice_.state_bytes; }
  // Appends the payloads of `count` rows. Without a state array the state is that of new rows.
  absl::Status Read(uint64_t row, uint64_t count, std::vector<uint8_t>* payloads);

 private:
  const TableSpec& spec_;
  const ArraySlice slice_;
  const RowArrays arrays_;
  const uint32_t weight_bytes_;
  std::vector<uint8_t> first_state_;
  std::vector<uint8_t> weights_;
  std::vector<uint8_t> state_;
};

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_ARRAY_ROWS_H_
