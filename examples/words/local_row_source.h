// The tables as plain arrays of this process, for comparison with the cluster's result. Initial
// values are those of the cluster's rows; updates are two-line loops.
#ifndef HOTBED_EXAMPLES_WORDS_LOCAL_ROW_SOURCE_H_
#define HOTBED_EXAMPLES_WORDS_LOCAL_ROW_SOURCE_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/tables/table_spec.h"
#include "trainer/row_source.h"

namespace hotbed {

// Shared by the sources of all trainers. Thread-safe: a pull or push holds one lock throughout.
class LocalTables {
 public:
  // Bounded tables of SGD or row-wise Adagrad, fp32, without any other option.
  explicit LocalTables(const std::vector<TableSpec>& specs);

  // Returns the number of distinct rows read.
  uint64_t Pull(const std::vector<RowColumn>& columns);
  // Gradients of an id are summed in the order of first appearance, then applied once. Returns the
  // number of rows changed.
  uint64_t Push(const std::vector<RowColumn>& columns, float learning_rate);

 private:
  struct Table {
    TableSpec spec;
    std::vector<float> weights;    // rows x dim
    std::vector<float> squares;    // row-wise Adagrad's sum, one per row
    std::vector<float> sums;       // of a push, rows x dim; zero between pushes
    std::vector<uint8_t> touched;  // by the current call
  };
  static void Update(Table* table, uint64_t id, float learning_rate);

  absl::Mutex mu_;
  std::vector<Table> tables_ ABSL_GUARDED_BY(mu_);
};

// Confined to one trainer thread; the Future of every call is ready at once.
class LocalRowSource : public RowSource {
 public:
  explicit LocalRowSource(LocalTables* tables) : tables_(tables) {}

  Future<absl::Status> Pull(const std::vector<RowColumn>& columns) override;
  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override;
  Future<absl::Status> Lookup(const std::vector<RowColumn>& columns) override;
  uint64_t rows_pulled() const override { return pulled_; }
  uint64_t rows_pushed() const override { return pushed_; }

 private:
  LocalTables* const tables_;
  uint64_t pulled_ = 0, pushed_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_LOCAL_ROW_SOURCE_H_
