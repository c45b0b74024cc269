// Examples as columns: one id a field and example, ready to be pulled.
#ifndef HOTBED_TRAINER_BATCH_H_
#define HOTBED_TRAINER_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hotbed {

// Which table each field of an example reads. Fields of one table share its rows by id.
struct FieldLayout {
  std::vector<std::string> tables;  // names
  std::vector<int> table_of_field;  // index into tables, one a field
  int fields() const { return static_cast<int>(table_of_field.size()); }
};

// `ids[field][i]` belongs to example i; every field of every example has an id (a missing value has
// its own).
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
