// The dumb twin of a cluster: rows in hash maps of this process, one lock, scalar optimizers.
#ifndef HOTBED_TESTS_TRAINER_MAP_ROW_SOURCE_H_
#define HOTBED_TESTS_TRAINER_MAP_ROW_SOURCE_H_

#include <cmath>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/random.h"
#include "row_math/position.h"
#include "trainer/row_source.h"

namespace hotbed {

// Shared by the sources of all workers.
struct MapRows {
  struct Row {
    std::vector<float> weights, state;
  };
  int dim = 0;
  bool adagrad = true;  // false: SGD
  float initial_accumulator = 0.0f;
  float deviation = 0.01f;
  absl::Mutex mu;
  std::vector<std::unordered_map<uint64_t, Row>> tables;

  Row& Find(int table, uint64_t id) {
    Row& row = tables[table][id];
    if (row.weights.empty()) {
      Random random(Mix64(id) + table);
      for (int k = 0; k < dim; ++k) {
        row.weights.push_back(deviation * static_cast<float>(2 * random.Double() - 1) * 1.7f);
      }
      row.state.assign(dim, initial_accumulator);
    }
    return row;
  }
};

class MapRowSource : public RowSource {
 public:
  explicit MapRowSource(MapRows* rows) : rows_(rows) {}

  Future<absl::Status> Pull(const std::vector<RowColumn>& columns) override {
    absl::MutexLock lock(&rows_->mu);
    for (const RowColumn& column : columns) {
      for (size_t i = 0; i < column.ids.size(); ++i) {
        const MapRows::Row& row = rows_->Find(column.table, column.ids[i]);
        std::copy(row.weights.begin(), row.weights.end(), column.rows + i * rows_->dim);
      }
      pulled_ += column.ids.size();
    }
    return Future<absl::Status>::Ready(absl::OkStatus());
  }

  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override {
    absl::MutexLock lock(&rows_->mu);
    std::vector<std::unordered_map<uint64_t, std::vector<float>>> sums(rows_->tables.size());
    for (const RowColumn& column : columns) {
      for (size_t i = 0; i < column.ids.size(); ++i) {
        std::vector<float>& sum = sums[column.table][column.ids[i]];
        sum.resize(rows_->dim);
        for (int k = 0; k < rows_->dim; ++k) sum[k] += column.gradients[i * rows_->dim + k];
      }
    }
    for (size_t t = 0; t < sums.size(); ++t) {
      for (const auto& [id, g] : sums[t])
        Update(&rows_->Find(static_cast<int>(t), id), g, learning_rate);
      pushed_ += sums[t].size();
    }
    return Future<PushResult>::Ready(PushResult{});
  }

  Future<absl::Status> Lookup(const std::vector<RowColumn>& columns) override {
    return Pull(columns);
  }
  uint64_t rows_pulled() const override { return pulled_; }
  uint64_t rows_pushed() const override { return pushed_; }

 private:
  void Update(MapRows::Row* row, const std::vector<float>& g, float learning_rate) {
    for (int k = 0; k < rows_->dim; ++k) {
      if (rows_->adagrad) {
        row->state[k] += g[k] * g[k];
        row->weights[k] -= learning_rate * g[k] / (std::sqrt(row->state[k]) + 1e-8f);
      } else {
        row->weights[k] -= learning_rate * g[k];
      }
    }
  }

  MapRows* rows_;
  uint64_t pulled_ = 0, pushed_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_TRAINER_MAP_ROW_SOURCE_H_
