// Examples as columns: one id per field and example, ready to be pulled. Plain values.
#ifndef HOTBED_TRAINER_BATCH_H_
#define HOTBED_TRAINER_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hotbed {

// The table that each field of an example reads. Fields of one table share its rows by id.
struct FieldLayout {
  std::vector<std::string> tables;  // names
  std::vector<int> table_of_field;  // one per field, index into tables
  int fields() const { return static_cast<int>(table_of_field.size()); }
};

// `ids[field][i]` belongs to example i; every field of every example has an id, and a missing
// value has an id of its own.
struct Batch {
  std::vector<std::vector<uint64_t>> ids;
  std::vector<float> labels;

  size_t size() const { return labels.size(); }
  void Reset(int fields) {
    ids.resize(fields);
    for (auto& column : ids) column.clear();
    labels.clear();
  }
};

}  // namespace hotbed

#endif  // HOTBED_TRAINER_BATCH_H_
