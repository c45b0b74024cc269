// Every optimizer, its options and its types against the CPU's code, bit by bit.
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "tests/device/case.h"
#include "tests/device/cpu_rows.h"

namespace hotbed {
namespace device {
namespace step_cases {

constexpr uint32_t kRows = 5;

RowsOptions SmallRows() {
  RowsOptions options;
  options.device_bytes = 160ull << 20;
  options.ids_max = 16384;
  options.segments_max = 64;
  options.tables_max = 16;
  options.row_bytes_max = 32ull << 20;
  options.move_bytes_max = 4ull << 20;
  return options;
}

// One batch for one table, of `ids` with random gradients.
struct OneTable {
  Segment segment;
  std::vector<uint64_t> ids;
  Bytes gradients;
  std::map<uint64_t, std::vector<std::vector<float>>> by_id;

  void Fill(CaseRandom* random, const RowShape& shape, float scale) {
    gradients.clear();
    by_id.clear();
    for (uint64_t id : ids) {
      std::vector<float> values(shape.dim);
      for (float& value : values) value = random->OneIn(20) ? 0.0f : random->Float(scale);
      const Bytes row = EncodedRow(segment.type, values);
      gradients.insert(gradients.end(), row.begin(), row.end());
      by_id[id].push_back(DecodedRow(segment.type, row.data(), shape.dim));
    }
  }
  Batch AsBatch() const { return {&segment, 1, ids.data(), static_cast<uint32_t>(ids.size())}; }
};

bool SameBytes(Findings* findings, const Bytes& got, const Bytes& want, const std::string& what) {
  size_t i = 0;
  while (i < want.size() && i < got.size() && got[i] == want[i]) ++i;
  if (got.size() == want.size() && i == want.size()) return true;
  const auto at = [i](const Bytes& bytes) { return i < bytes.size() ? int{bytes[i]} : -1; };
  findings->Add(what, ": byte ", i, " of ", want.size(), " is ", at(got), ", not ", at(want));
  return false;
}

std::string Named(const RowShape& shape, RowType gradient) {
  return "kind " + std::to_string(static_cast<int>(shape.optimizer.kind)) + " dim " +
         std::to_string(shape.dim) + " weights " +
         std::to_string(static_cast<int>(shape.weight_type)) + " state " +
         std::to_string(static_cast<int>(shape.optimizer.state_type)) + " gradients " +
         std::to_string(static_cast<int>(gradient));
}

// Three steps of `ids`, then all rows are compared.
void CompareSteps(DeviceRows* rows, CaseRandom* random, const RowShape& shape,
                  const std::vector<uint64_t>& ids, Findings* findings) {
  uint32_t table = 0;
  if (!findings->Ok(rows->AddTable(shape, false, 0, kRows, &table))) return;
  std::map<uint64_t, Bytes> twin;
  std::vector<RowToInsert> inserted;
  std::vector<MovedRow> moved;
  std::vector<uint32_t> missing;
  OneTable batch;
  batch.ids = ids;
  batch.segment.table = table;
  for (uint64_t id : ids) {
    if (!twin.emplace(id, FirstStored(shape, id)).second) continue;
    inserted.push_back({table, Mix64(id), nullptr});
  }
  findings->Ok(rows->Insert(inserted, true, &moved));
  for (uint64_t step = 1; step <= 3; ++step) {
    batch.segment.type = static_cast<RowType>(random->Below(3));
    batch.segment.scalars = RandomScalars(random, shape, step * step);
    batch.segment.assign = random->OneIn(10);
    // Squares of 1e25 overflow, which clipping must mend. Elsewhere it would only make NaN, whose
    // bits no two processors agree on: fp16 has no 1e25, and infinity clipped is NaN.
    const bool huge = batch.segment.scalars.clip_row_norm > 0 && !batch.segment.assign &&
                      batch.segment.type != RowType::kFp16;
    batch.Fill(random, shape, huge && random->OneIn(2) ? 1e25f : 1.0f);
    const uint8_t* const gradients_at = batch.gradients.data();
    if (!findings->Ok(ProbeNow(&*rows, batch.AsBatch(), &missing))) return;
    findings->Check(missing.empty(), missing.size(), " rows are missing");
    if (!findings->Ok(UpdateNow(&*rows, batch.AsBatch(), gradients_at, &missing))) return;
    findings->Check(missing.empty(), missing.size(), " rows were elsewhere");
    for (auto& [id, stored] : twin) {
      const auto& gradients = batch.by_id[id];
      const std::vector<float> sum = batch.segment.assign ? gradients.back() : SumOfRuns(gradients);
      const auto* const bytes = reinterpret_cast<const uint8_t*>(sum.data());
      if (batch.segment.assign) {
        AssignStored(shape, id, RowType::kFp32, bytes, &stored);
      } else {
        StepStored(shape, id, batch.segment.scalars, RowType::kFp32, bytes, &stored);
      }
    }
  }
  uint32_t slot = 0;
  moved.clear();
  findings->Ok(rows->Collect(table, &slot, 1000, &moved));
  findings->Check(moved.size() == twin.size(), moved.size(), " dirty rows of ", twin.size());
  for (const MovedRow& row : moved) {
    SameBytes(findings, row.stored, twin[Unmix64(row.position)], Named(shape, batch.segment.type));
  }
  rows->RemoveTable(table);
}

std::vector<uint64_t> FewIds(CaseRandom* random) {
  std::vector<uint64_t> ids;
  for (uint32_t k = 0; k < kRows; ++k) ids.push_back(random->OneIn(6) ? ~0ull - k : k);
  for (uint32_t k = random->Below(6); k > 0; --k) ids.push_back(ids[random->Below(kRows)]);
  return ids;
}

struct MixedTable {
  RowShape shape;
  OneTable part;
  std::map<uint64_t, Bytes> twin;
};

// One message over tables of many kinds, of dims in fours and not, with steps and new weights.
void CompareMixed(DeviceRows* rows, CaseRandom* random, uint32_t count, Findings* findings) {
  std::vector<MixedTable> tables(count);
  std::vector<RowToInsert> inserted;
  std::vector<Segment> segments;
  std::vector<uint64_t> ids;
  Bytes gradients;
  for (MixedTable& table : tables) {
    Segment& segment = table.part.segment;
    table.shape = RandomShape(random, 1 + random->Below(20));
    table.part.ids = FewIds(random);
    if (!findings->Ok(rows->AddTable(table.shape, false, 0, kRows, &segment.table))) return;
    for (uint64_t id : table.part.ids) {
      if (!table.twin.emplace(id, FirstStored(table.shape, id)).second) continue;
      inserted.push_back({segment.table, Mix64(id), nullptr});
    }
    segment.type = static_cast<RowType>(random->Below(3));
    segment.scalars = RandomScalars(random, table.shape, 1);
    segment.assign = random->OneIn(6);
    segment.first = static_cast<uint32_t>(ids.size());
    gradients.resize((gradients.size() + 15) / 16 * 16);
    segment.rows_at = gradients.size();
    table.part.Fill(random, table.shape, 1.0f);
    segments.push_back(segment);
    ids.insert(ids.end(), table.part.ids.begin(), table.part.ids.end());
    gradients.insert(gradients.end(), table.part.gradients.begin(), table.part.gradients.end());
  }
  std::vector<MovedRow> moved;
  std::vector<uint32_t> missing;
  findings->Ok(rows->Insert(inserted, true, &moved));
  const Batch batch = {segments.data(), count, ids.data(), static_cast<uint32_t>(ids.size())};
  if (!findings->Ok(UpdateNow(&*rows, batch, gradients.data(), &missing))) return;
  findings->Check(missing.empty(), missing.size(), " rows are missing");
  for (MixedTable& table : tables) {
    const Segment& segment = table.part.segment;
    uint32_t slot = 0;
    moved.clear();
    findings->Ok(rows->Collect(segment.table, &slot, 1000, &moved));
    for (const MovedRow& row : moved) {
      const uint64_t id = IdOfPosition(table.shape, row.position);
      Bytes want = table.twin[id];
      const auto& of_id = table.part.by_id[id];
      const std::vector<float> sum = segment.assign ? of_id.back() : SumOfRuns(of_id);
      const auto* const bytes = reinterpret_cast<const uint8_t*>(sum.data());
      if (segment.assign) {
        AssignStored(table.shape, id, RowType::kFp32, bytes, &want);
      } else {
        StepStored(table.shape, id, segment.scalars, RowType::kFp32, bytes, &want);
      }
      SameBytes(findings, row.stored, want, Named(table.shape, segment.type));
    }
    findings->Check(moved.size() == table.twin.size(), moved.size(), " dirty rows");
    rows->RemoveTable(segment.table);
  }
}

void MixedSteps(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  if (!findings->Ok(DeviceRows::Open(device, SmallRows(), &rows))) return;
  CaseRandom random(seed);
  for (uint32_t round = 0; round < 20 && findings->count() == 0; ++round) {
    CompareMixed(rows.get(), &random, 1 + random.Below(12), findings);
  }
}

void AllKinds(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  if (!findings->Ok(DeviceRows::Open(device, SmallRows(), &rows))) return;
  CaseRandom random(seed);
  for (uint32_t kind = 0; kind <= static_cast<uint32_t>(kLastOptimizerKind); ++kind) {
    for (uint32_t dim : {1u, 2u, 3u, 17u, 31u, 32u, 33u, 64u, 100u, 128u, 1000u}) {
      RowShape shape = RandomShape(&random, dim);
      shape.optimizer.kind = static_cast<OptimizerKind>(kind);
      CompareSteps(rows.get(), &random, shape, FewIds(&random), findings);
      if (findings->count() > 0) return;
    }
  }
}

void PlainSteps(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  if (!findings->Ok(DeviceRows::Open(device, SmallRows(), &rows))) return;
  CaseRandom random(seed);
  for (uint32_t round = 0; round < 60 && findings->count() == 0; ++round) {
    RowShape shape = RandomShape(&random, 1 + random.Below(300));
    const OptimizerKind kind = shape.optimizer.kind;
    shape.optimizer = OptimizerParams();  // no options
    shape.optimizer.kind = kind;
    CompareSteps(rows.get(), &random, shape, FewIds(&random), findings);
  }
}

// Runs around the length of a piece and of several, in an order that mixes them.
void LongRuns(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  if (!findings->Ok(DeviceRows::Open(device, SmallRows(), &rows))) return;
  CaseRandom random(seed);
  for (uint32_t round = 0; round < 6 && findings->count() == 0; ++round) {
    std::vector<uint64_t> ids;
    for (uint32_t row = 0; row < kRows; ++row) {
      const uint32_t length =
          random.Pick<uint32_t>({1, 2, 1023, 1024, 1025, 1026, 2047, 2048, 2049, 3000});
      ids.insert(ids.end(), length, row);
    }
    for (size_t k = ids.size(); k > 1; --k) std::swap(ids[k - 1], ids[random.Below(k)]);
    const RowShape shape = RandomShape(&random, 1 + random.Below(40));
    CompareSteps(rows.get(), &random, shape, ids, findings);
  }
}

}  // namespace step_cases

std::vector<Case> StepCases() {
  return {{"all_kinds", step_cases::AllKinds},
          {"plain_steps", step_cases::PlainSteps},
          {"mixed_steps", step_cases::MixedSteps},
          {"long_runs", step_cases::LongRuns}};
}

}  // namespace device
}  // namespace hotbed
