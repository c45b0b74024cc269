#include "tests/device/ptx/profile_case.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "tests/device/cpu_rows.h"

namespace hotbed {
namespace device {
namespace {

constexpr uint32_t kDim = 64;
constexpr uint32_t kRows = 8192;
constexpr uint32_t kIds = 4096;  // of a message, each once

RowsOptions Options() {
  RowsOptions options;
  options.device_bytes = 64ull << 20;
  options.ids_max = kRows;
  options.segments_max = 4;
  options.tables_max = 4;
  options.row_bytes_max = 4ull << 20;
  options.move_bytes_max = 4ull << 20;
  return options;
}

void ReadAndStep(DeviceRows* rows, CaseRandom* random, OptimizerKind kind, Findings* findings) {
  RowShape shape;
  shape.seed = random->Next();
  shape.dim = kDim;
  shape.hashed = true;
  shape.initializer = {static_cast<InitializerKind>(1), -0.25f, 0.5f};
  shape.optimizer.kind = kind;
  Segment segment;
  if (!findings->Ok(rows->AddTable(shape, false, 0, 2 * kRows, &segment.table))) return;
  std::vector<RowToInsert> inserted;
  std::vector<MovedRow> moved;
  for (uint64_t id = 0; id < kRows; ++id) {
    inserted.push_back({segment.table, PositionOfId(shape, id), nullptr});
  }
  if (!findings->Ok(rows->Insert(inserted, true, false, &moved))) return;
  std::vector<uint64_t> ids;
  for (uint32_t k = 0; k < kIds; ++k) ids.push_back((uint64_t{k} * 1597 + 11) % kRows);
  const Batch batch = {&segment, 1, ids.data(), kIds};
  Bytes out(size_t{4} * kDim * kIds), gradients(out.size());
  std::vector<uint32_t> missing;
  if (!findings->Ok(rows->Pull(batch, out.data(), nullptr, &missing))) return;
  findings->Check(missing.size() < kIds / 8, missing.size(), " rows are missing");
  segment.scalars = ResolveScalars(shape.optimizer, 0.05f, 1);
  for (size_t i = 0; i < gradients.size(); i += 4) {
    const float value = random->Float(1.0f);
    std::memcpy(&gradients[i], &value, 4);
  }
  if (!findings->Ok(rows->Probe(batch, &missing))) return;
  if (!findings->Ok(rows->Update(batch, gradients.data(), &missing))) return;
  if (!findings->Ok(rows->Pull(batch, out.data(), nullptr, &missing))) return;
  for (uint32_t k = 0, next = 0; k < kIds; ++k) {
    if (next < missing.size() && missing[next] == k) {
      ++next;
      continue;
    }
    Bytes want = FirstStored(shape, ids[k]);
    StepStored(shape, ids[k], segment.scalars, RowType::kFp32, &gradients[size_t{4} * kDim * k],
               &want);
    findings->Check(std::memcmp(want.data(), &out[size_t{4} * kDim * k], 4 * kDim) == 0,
                    "row of id ", ids[k]);
  }
  rows->RemoveTable(segment.table);
}

void ManyRows(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  if (!findings->Ok(DeviceRows::Open(device, Options(), &rows))) return;
  CaseRandom random(seed);
  for (const OptimizerKind kind :
       {OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
    if (findings->count() == 0) ReadAndStep(rows.get(), &random, kind, findings);
  }
}

}  // namespace

Case ProfileCase() { return {"many_rows", ManyRows}; }

}  // namespace device
}  // namespace hotbed
