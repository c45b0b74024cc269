#include "examples/words/local_row_source.h"

#include <gtest/gtest.h>

#include <cmath>

#include "row_math/initializer.h"

namespace hotbed {
namespace local_row_source_test {

std::vector<TableSpec> Specs(OptimizerKind kind) {
  std::vector<TableSpec> specs(2);
  for (TableSpec& spec : specs) {
    spec.name = &spec == specs.data() ? "a" : "b";
    spec.rows = 5;
    spec.dim = 3;
    spec.optimizer.kind = kind;
  }
  specs[0].initializer = {InitializerKind::kUniform, -1, 1};
  specs[0].seed = 77;
  return specs;
}

std::vector<float> Row(LocalTables* tables, int table, uint64_t id) {
  std::vector<float> row(3);
  tables->Pull({{table, absl::MakeConstSpan(&id, 1), row.data(), nullptr}});
  return row;
}

TEST(LocalRowSourceTest, FirstValuesAreThoseOfAServer) {
  const std::vector<TableSpec> specs = Specs(OptimizerKind::kSgd);
  LocalTables tables(specs);
  for (uint64_t id = 0; id < 5; ++id) {
    for (uint32_t d = 0; d < 3; ++d) {
      EXPECT_EQ(Row(&tables, 0, id)[d], InitialValue(specs[0].initializer, 77, id, d));
      EXPECT_EQ(Row(&tables, 1, id)[d], 0);
    }
  }
}

TEST(LocalRowSourceTest, GradientsOfAnIdAreSummedAndAppliedOnce) {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad}) {
    LocalTables tables(Specs(kind));
    LocalRowSource source(&tables);
    const std::vector<uint64_t> first = {2, 4, 2}, second = {2};
    const std::vector<float> g = {1, 2, 3, 7, 7, 7, 3, 2, 1}, h = {1, 1, 1};
    double squares = 0, weight[3] = {};
    const double sum[3] = {5, 5, 5};
    for (uint64_t step = 1; step <= 3; ++step) {
      EXPECT_TRUE(
          source.Push(step, {{1, first, nullptr, g.data()}, {1, second, nullptr, h.data()}}, 0.5f)
              .Wait()
              .status.ok());
      squares += (sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2]) / 3;
      for (int d = 0; d < 3; ++d) {
        weight[d] -= kind == OptimizerKind::kSgd ? 0.5 * sum[d] : 0.5 * sum[d] / std::sqrt(squares);
      }
    }
    for (int d = 0; d < 3; ++d) EXPECT_NEAR(Row(&tables, 1, 2)[d], weight[d], 1e-5);
    EXPECT_EQ(Row(&tables, 1, 0)[0], 0);
    EXPECT_LT(Row(&tables, 1, 4)[0], 0);
    EXPECT_EQ(source.rows_pushed(), 6u);
    std::vector<float> rows(12);
    source.Pull({{1, first, rows.data(), nullptr}, {0, second, rows.data() + 9, nullptr}}).Wait();
    EXPECT_EQ(source.rows_pulled(), 3u);
    EXPECT_EQ(rows[0], rows[6]);
  }
}

}  // namespace local_row_source_test
}  // namespace hotbed
