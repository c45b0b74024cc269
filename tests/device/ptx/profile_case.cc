#include "tests/device/ptx/profile_case.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "tests/device/case.h"
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
  if (!findings->Ok(rows->Insert(inserted, true, &moved))) return;
  std::vector<uint64_t> ids;
  for (uint32_t k = 0; k < kIds; ++k) ids.push_back((uint64_t{k} * 1597 + 11) % kRows);
  const Batch batch = {&segment, 1, ids.data(), kIds};
  Bytes out(size_t{4} * kDim * kIds), gradients(out.size());
  std::vector<uint32_t> missing;
  if (!findings->Ok(PullNow(&*rows, batch, out.data(), nullptr, &missing))) return;
  findings->Check(missing.size() < kIds / 8, missing.size(), " rows are missing");
  segment.scalars = ResolveScalars(shape.optimizer, 0.05f, 1);
  for (size_t i = 0; i < gradients.size(); i += 4) {
    const float value = random->Float(1.0f);
    std::memcpy(&gradients[i], &value, 4);
  }
  if (!findings->Ok(ProbeNow(&*rows, batch, &missing))) return;
  if (!findings->Ok(UpdateNow(&*rows, batch, gradients.data(), &missing))) return;
  if (!findings->Ok(PullNow(&*rows, batch, out.data(), nullptr, &missing))) return;
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

// Rows with bytes of their own into a table that is full of others, which are copied out.
void Evict(DeviceRows* rows, CaseRandom* random, Findings* findings) {
  RowShape shape;
  shape.seed = random->Next();
  shape.dim = kDim;
  shape.hashed = true;
  shape.optimizer.kind = OptimizerKind::kSgd;
  uint32_t table = 0;
  constexpr uint32_t kSlots = 8 * kIds;  // eight rows of a message a bucket
  if (!findings->Ok(rows->AddTable(shape, false, 0, kSlots, &table))) return;
  const Bytes stored = FirstStored(shape, 1);
  std::vector<MovedRow> moved;
  for (uint64_t first = 0; first < 2 * kSlots; first += kIds) {
    std::vector<RowToInsert> inserted;
    for (uint64_t id = first; id < first + kIds; ++id) {
      inserted.push_back({table, PositionOfId(shape, id), stored.data()});
    }
    moved.clear();
    if (!findings->Ok(rows->Insert(inserted, true, &moved))) return;
  }
  findings->Check(moved.size() > kIds * 9 / 10, moved.size(), " rows made room");
  for (const MovedRow& row : moved) findings->Check(row.stored == stored, "a victim's bytes");
  rows->RemoveTable(table);
}

// Sixteen gradients a row.
void Duplicates(DeviceRows* rows, CaseRandom* random, Findings* findings) {
  RowShape shape;
  shape.seed = random->Next();
  shape.dim = kDim;
  shape.optimizer.kind = OptimizerKind::kSgd;
  Segment segment;
  if (!findings->Ok(rows->AddTable(shape, true, 0, kIds / 16, &segment.table))) return;
  std::vector<RowToInsert> inserted;
  std::vector<MovedRow> moved;
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < kIds / 16; ++id) inserted.push_back({segment.table, id, nullptr});
  for (uint32_t k = 0; k < kIds; ++k) ids.push_back(k % (kIds / 16));
  if (!findings->Ok(rows->Insert(inserted, true, &moved))) return;
  segment.scalars = ResolveScalars(shape.optimizer, 1.0f, 1);
  const Batch batch = {&segment, 1, ids.data(), kIds};
  const std::vector<float> ones(size_t{kDim} * kIds, 1.0f);
  std::vector<uint32_t> missing;
  findings->Ok(UpdateNow(&*rows, batch, reinterpret_cast<const uint8_t*>(ones.data()), &missing));
  Bytes out(size_t{4} * kDim * kIds);
  if (!findings->Ok(PullNow(&*rows, batch, out.data(), nullptr, &missing))) return;
  for (size_t i = 0; i < out.size(); i += 4) {
    float value;
    std::memcpy(&value, &out[i], 4);
    if (!findings->Check(value == -16.0f, "a sum of 16 is ", value)) return;
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
  if (findings->count() == 0) Evict(rows.get(), &random, findings);
  if (findings->count() == 0) Duplicates(rows.get(), &random, findings);
}

}  // namespace

Case ProfileCase() { return {"many_rows", ManyRows}; }

}  // namespace device
}  // namespace hotbed
