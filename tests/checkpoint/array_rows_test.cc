#include "checkpoint/array_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "common/random.h"
#include "row_math/initializer.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace array_rows_test {

struct Arrays {
  explicit Arrays(const std::string& path) : path_(path) { std::remove(path_.c_str()); }
  ~Arrays() { std::remove(path_.c_str()); }
  const std::string path_;
};

TableSpec RandomTable(Random* random) {
  TableSpec spec;
  spec.name = "user";
  spec.dim = 1 + random->Uniform(9);
  spec.rows = 1 + random->Uniform(200);
  spec.column_slices = 1 + random->Uniform(std::min<uint64_t>(spec.dim, 3));
  spec.weight_type = static_cast<WeightType>(random->Uniform(3));
  spec.optimizer.kind = random->OneIn(2) ? OptimizerKind::kAdam : OptimizerKind::kRowwiseAdagrad;
  spec.initializer.kind = InitializerKind::kUniform;
  spec.initializer.a = -1;
  spec.initializer.b = 1;
  spec.seed = random->Uniform(1000);
  spec.has_padding_id = random->OneIn(2);
  spec.padding_id = random->Uniform(spec.rows);
  return spec;
}

RowArrays ArraysOf(ArrayFile* file, const std::vector<ArrayInfo>& made) {
  return {file, made[0].offset, WeightType::kFp32, file, made[1].offset};
}

// Passes of random rows, and gaps, by slice and range, against a map of rows; then read back.
TEST(ArrayRowsTest, RandomPassesGiveTheRowsOfAMap) {
  const TestSeed seed(11);
  Random random(seed.value());
  for (int round = 0; round < 40; ++round) {
    const TableSpec spec = RandomTable(&random);
    const Arrays temporary(testing::TempDir() + "/array_rows_test.safetensors");
    std::vector<ArrayInfo> made(2);
    made[0].name = "weight";
    made[0].type = "F32";
    made[0].element = ElementType::kFp32;
    made[0].rows = spec.rows;
    made[0].columns = spec.dim;
    made[1] = made[0];
    made[1].name = "state";
    made[1].columns = spec.state_bytes_per_row() / 4;
    ASSERT_TRUE(MakeArrays(temporary.path_, &made).ok());
    const auto file = *ArrayFile::Open(temporary.path_, /*writes=*/true);
    const auto written = *ArrayFile::Open(temporary.path_, /*writes=*/false);
    const RowArrays arrays = ArraysOf(file.get(), made);
    const RowArrays to_read = ArraysOf(written.get(), made);
    for (uint32_t s = 0; s < spec.column_slices; ++s) {
      const ColumnRange columns = SliceColumns(spec.dim, spec.column_slices, s);
      const ArraySlice slice(spec, columns.first, columns.limit);
      const uint32_t weight_bytes = BytesPerWeight(spec.weight_type) * columns.columns();
      const uint64_t cut = random.Uniform(spec.rows + 1);
      std::map<uint64_t, std::vector<uint8_t>> rows;
      for (const auto& [first, limit] : {std::pair(uint64_t{0}, cut), std::pair(cut, spec.rows)}) {
        ArrayRowWriter writer(
            &spec, slice, arrays, first, limit, [](uint64_t row) { return row; },
            [](uint64_t /*bytes*/, absl::FunctionRef<absl::Status()> write) { return write(); });
        for (uint64_t pass = 1 + random.Uniform(3); pass > 0; --pass) {
          ASSERT_TRUE(writer.BeginPass().ok());
          for (uint64_t row = first; row < limit; ++row) {
            if (!random.OneIn(3)) continue;
            std::vector<uint8_t>& payload = rows[row];
            payload.assign(weight_bytes + slice.state_bytes, 0);
            for (uint32_t k = 0; k < columns.columns(); ++k) {
              StoreWeight(static_cast<float>(random.Uniform(100)), spec.weight_type,
                          payload.data() + k * BytesPerWeight(spec.weight_type));
            }
            payload.back() = static_cast<uint8_t>(random.Uniform(100));
            ASSERT_TRUE(writer.Put(row, payload.data()).ok());
          }
        }
        ASSERT_TRUE(writer.Finish().ok());
      }
      ArrayRowReader reader(&spec, slice, to_read);
      std::vector<uint8_t> got;
      ASSERT_TRUE(reader.Read(0, spec.rows, &got).ok());
      for (uint64_t row = 0; row < spec.rows; ++row) {
        std::vector<uint8_t> want(reader.payload_bytes());
        const bool padding = spec.has_padding_id && row == spec.padding_id;
        if (rows.contains(row) && !padding) {
          want = rows[row];
        } else {
          FirstState(spec.optimizer, columns.columns(), want.data() + weight_bytes);
          std::vector<float> first(columns.columns());
          InitialRow(spec.initializer, spec.seed, row, columns.first, columns.columns(),
                     first.data());
          for (uint32_t k = 0; k < columns.columns() && !padding; ++k) {
            StoreWeight(first[k], spec.weight_type,
                        want.data() + k * BytesPerWeight(spec.weight_type));
          }
        }
        ASSERT_EQ(std::memcmp(want.data(), got.data() + row * want.size(), want.size()), 0)
            << "row " << row << ", slice " << s;
      }
    }
  }
}

}  // namespace array_rows_test
}  // namespace hotbed
