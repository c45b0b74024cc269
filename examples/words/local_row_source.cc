#include "examples/words/local_row_source.h"

#include <algorithm>
#include <cmath>

#include "examples/words/skip_gram.h"
#include "row_math/initializer.h"

namespace hotbed {

LocalTables::LocalTables(const std::vector<TableSpec>& specs) {
  for (const TableSpec& spec : specs) {
    Table table;
    table.spec = spec;
    const uint64_t seed = spec.seed != 0 ? spec.seed : DefaultTableSeed(spec.name);
    table.weights.resize(spec.rows * spec.dim);
    for (uint64_t id = 0; id < spec.rows; ++id) {
      InitialRow(spec.initializer, seed, id, 0, spec.dim, table.weights.data() + id * spec.dim);
    }
    table.squares.assign(spec.rows, spec.optimizer.initial_accumulator);
    table.sums.resize(table.weights.size());
    table.touched.resize(spec.rows);
    tables_.push_back(std::move(table));
  }
}

uint64_t LocalTables::Pull(const std::vector<RowColumn>& columns) {
  absl::MutexLock lock(&mu_);
  uint64_t rows = 0;
  for (const RowColumn& column : columns) {
    Table& table = tables_[column.table];
    const uint32_t dim = table.spec.dim;
    for (size_t i = 0; i < column.ids.size(); ++i) {
      std::copy_n(table.weights.data() + column.ids[i] * dim, dim, column.rows + i * dim);
      rows += table.touched[column.ids[i]] == 0;
      table.touched[column.ids[i]] = 1;
    }
  }
  for (const RowColumn& column : columns) {
    for (const uint64_t id : column.ids) tables_[column.table].touched[id] = 0;
  }
  return rows;
}

void LocalTables::Update(Table* table, uint64_t id, float learning_rate) {
  const uint32_t dim = table->spec.dim;
  float* const gradient = table->sums.data() + id * dim;
  float step = learning_rate;
  if (table->spec.optimizer.kind == OptimizerKind::kRowwiseAdagrad) {
    table->squares[id] += Dot(gradient, gradient, dim) / static_cast<float>(dim);
    step /= std::sqrt(table->squares[id]) + table->spec.optimizer.epsilon;
  }
  AddScaled(-step, gradient, dim, table->weights.data() + id * dim);
  std::fill_n(gradient, dim, 0.0f);
}

uint64_t LocalTables::Push(const std::vector<RowColumn>& columns, float learning_rate) {
  absl::MutexLock lock(&mu_);
  uint64_t rows = 0;
  for (const RowColumn& column : columns) {
    Table& table = tables_[column.table];
    const uint32_t dim = table.spec.dim;
    for (size_t i = 0; i < column.ids.size(); ++i) {
      AddScaled(1.0f, column.gradients + i * dim, dim, table.sums.data() + column.ids[i] * dim);
      table.touched[column.ids[i]] = 1;
    }
  }
  // After all columns, so that a row in two columns is updated once.
  for (const RowColumn& column : columns) {
    Table& table = tables_[column.table];
    for (const uint64_t id : column.ids) {
      if (table.touched[id] == 0) continue;
      table.touched[id] = 0;
      Update(&table, id, learning_rate);
      ++rows;
    }
  }
  return rows;
}

Future<absl::Status> LocalRowSource::Pull(const std::vector<RowColumn>& columns) {
  pulled_ += tables_->Pull(columns);
  return Future<absl::Status>::Ready(absl::OkStatus());
}

Future<PushResult> LocalRowSource::Push(uint64_t step, const std::vector<RowColumn>& columns,
                                        float learning_rate) {
  pushed_ += tables_->Push(columns, learning_rate);
  PushResult result;
  result.step = step;
  return Future<PushResult>::Ready(result);
}

Future<absl::Status> LocalRowSource::Lookup(const std::vector<RowColumn>& columns) {
  return Pull(columns);
}

}  // namespace hotbed
