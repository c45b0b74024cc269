#include "bench/device/bench_measures.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

namespace hotbed {
namespace device {
namespace {

Result RoofPart(const BenchRun& run, const std::string& name, const Timing& timing, double bytes,
                double bar) {
  Result result;
  result.name = name;
  result.value = bytes / timing.median_s / run.roof;
  result.unit = "of the roof";
  result.bar = Bar::kAtLeast;
  result.limit = bar;
  result.timing = timing;
  result.bytes = bytes;
  return result;
}

std::vector<uint64_t> Drawn(const std::vector<uint64_t>& from, uint64_t count, uint64_t seed) {
  std::vector<uint64_t> ids(count);
  for (uint64_t k = 0; k < count; ++k) ids[k] = from[Mix64(seed + k) % from.size()];
  return ids;
}

// Random bits, because zeros may be copied faster.
void FillMixed(Device* device, uint8_t* memory, uint64_t bytes) {
  std::vector<uint64_t> mixed(1u << 20);
  for (uint64_t i = 0; i < mixed.size(); ++i) mixed[i] = Mix64(i);
  for (uint64_t at = 0; at < bytes; at += 8 * mixed.size()) {
    device->CopyIn(memory + at, mixed.data(), std::min<uint64_t>(8 * mixed.size(), bytes - at));
  }
  MustBe(device->Wait());
}

Timing TimeReads(const BenchRun& run, BenchTables* tables) {
  return TimeOf(
      run.device,
      [&]() {
        tables->Read(true);
        tables->NextIds();
      },
      run.samples);
}

}  // namespace

RowShape BenchShape(uint32_t dim, OptimizerKind kind, bool hashed) {
  RowShape shape;
  shape.seed = 7;
  shape.dim = dim;
  shape.hashed = hashed;
  shape.optimizer.kind = kind;
  shape.initializer = {InitializerKind::kUniform, -0.05f, 0.05f};
  return shape;
}

std::vector<uint64_t> ZipfIds(uint64_t limit, uint32_t count, uint64_t seed) {
  constexpr double kPower = 1.0 - 1.05;
  const double whole = std::pow(static_cast<double>(limit) + 1.0, kPower) - 1.0;
  std::vector<uint64_t> ids(count);
  for (uint32_t k = 0; k < count; ++k) {
    const double u = static_cast<double>(Mix64(seed + k) >> 11) / 9007199254740992.0;
    const auto rank = static_cast<uint64_t>(std::pow(1.0 + u * whole, 1.0 / kPower)) - 1;
    ids[k] = std::min(rank, limit - 1);
  }
  return ids;
}

namespace {

// Measures and adds a roof; returns its bytes/s.
double AddRoof(const BenchRun& run, const char* name, const char* detail, double bytes,
               const std::function<void()>& copy) {
  Result result;
  result.name = name;
  result.timing = TimeOf(run.device, copy, run.samples);
  result.bytes = bytes;
  result.value = bytes / result.timing.median_s / 1e9;
  result.unit = "GB/s";
  result.detail = detail;
  run.report->Add(result);
  return bytes / result.timing.median_s;
}

// What rows and gradients can do at best between pinned host memory and the device.
void MeasureHostLink(const BenchRun& run, uint8_t* memory, uint64_t bytes) {
  uint8_t* pinned = nullptr;
  MustBe(run.device->AllocateStaging(bytes, &pinned));
  std::memset(pinned, 0x5a, bytes);
  AddRoof(run, "roof: copy from pinned host memory", "", static_cast<double>(bytes),
          [&]() { run.device->CopyIn(memory, pinned, bytes); });
  AddRoof(run, "roof: copy to pinned host memory", "", static_cast<double>(bytes),
          [&]() { run.device->CopyOut(pinned, memory, bytes); });
  run.device->FreeStaging(pinned);
}

}  // namespace

void MeasureRoof(BenchRun* run) {
  BenchMemory memory(run->device);
  const uint64_t bytes = static_cast<uint64_t>(std::max(1e6, run->scale * 1e9));
  uint8_t* const from = memory.Take(bytes);
  uint8_t* const to = memory.Take(bytes);
  FillMixed(run->device, from, bytes);
  run->roof = AddRoof(*run, "roof: device-to-device copy", "bytes read and written",
                      2.0 * static_cast<double>(bytes),
                      [&]() { run->device->CopyWithin(to, from, bytes); });
  MeasureHostLink(*run, from, bytes / 4);
}

void MeasureGather(const BenchRun& run, uint32_t dim) {
  BenchTables tables(run.device, run.Ids(), 4 * dim);
  const uint64_t rows = run.Rows(4 * dim);
  const uint32_t table = tables.Add(BenchShape(dim, OptimizerKind::kSgd, false), true, rows);
  tables.Insert(table, 0, rows);
  std::vector<uint64_t> ids(uint64_t{kIdLists} * run.Ids());
  for (uint64_t k = 0; k < ids.size(); ++k) ids[k] = Mix64(k) % rows;
  tables.SetLists({Segment()}, ids, kIdLists);
  const std::string of_dim = ", dim " + std::to_string(dim) + ", uniform ids";
  run.report->Add(
      RoofPart(run, "gather" + of_dim, TimeReads(run, &tables), 8.0 * dim * run.Ids(), 0.85));
  constexpr uint32_t kBag = 20;
  const Timing pooled = TimeOf(
      run.device,
      [&]() {
        tables.Read(false);
        tables.Pool(kBag);
        tables.NextIds();
      },
      run.samples);
  // Each row is read, and the row of each bag written.
  const double bags = run.Ids() / kBag;
  run.report->Add(RoofPart(run, "probe and pooled gather, bags of 20" + of_dim, pooled,
                           4.0 * dim * (kBag + 1) * bags, 0.85));
}

void MeasureApply(const BenchRun& run, OptimizerKind kind, const char* name) {
  constexpr uint32_t kDim = 128;
  BenchTables tables(run.device, run.Ids(), 4 * kDim);
  const uint64_t rows = run.Rows(4 * kDim);
  const RowShape shape = BenchShape(kDim, kind, false);
  tables.Add(shape, true, rows);
  tables.Insert(0, 0, rows);
  std::vector<uint64_t> ids(std::min<uint64_t>(run.Ids(), rows));
  for (uint32_t k = 0; k < ids.size(); ++k) ids[k] = k * (rows / ids.size());
  for (size_t k = ids.size(); k > 1; --k) std::swap(ids[k - 1], ids[Mix64(k) % k]);
  Segment segment;
  segment.scalars = ResolveScalars(shape.optimizer, 0.01f, 1);
  tables.SetBatch({segment}, ids);
  tables.Read(true);  // the gradients are the present rows
  tables.SortForUpdate();
  const auto step = [&]() { tables.Step(kind); };
  // Reads the gradient; reads and writes the row and its state.
  const double state = StateBytes(shape.optimizer, kDim);
  const double bytes = (4.0 * kDim + 2 * (4.0 * kDim + state)) * static_cast<double>(ids.size());
  const std::string of_rows = std::string(name) + " apply, dim 128, unique ids";
  run.report->Add(RoofPart(run, of_rows, TimeOf(run.device, step, run.samples), bytes, 0.75));
  Result sorted = RoofPart(run, of_rows + ", with probe and sort",
                           TimeOf(
                               run.device,
                               [&]() {
                                 tables.Read(false);
                                 tables.SortForUpdate();
                                 step();
                               },
                               run.samples),
                           bytes, 0);
  sorted.bar = Bar::kNone;
  run.report->Add(sorted);
}

// Random keys, which are all present.
void MeasureFinds(const BenchRun& run) {
  constexpr uint32_t kDim = 64;
  double seconds[2] = {};
  for (const bool full : {false, true}) {
    BenchTables tables(run.device, run.Ids(), 4 * kDim);
    const uint64_t slots = run.Rows(4 * kDim);
    tables.Add(BenchShape(kDim, OptimizerKind::kSgd, true), false, slots);
    // Full only when every bucket is full; until then the fullest buckets yield victims.
    tables.Insert(0, 0, static_cast<uint64_t>((full ? 1.6 : 0.5) * static_cast<double>(slots)));
    const std::vector<uint64_t> resident = tables.ResidentIds(0);
    tables.SetLists({Segment()}, Drawn(resident, uint64_t{kIdLists} * run.Ids(), 3), kIdLists);
    char name[64];
    std::snprintf(name, sizeof(name), "hashed find, dim 64, load factor %.3f",
                  tables.LoadFactor(0));
    const Timing timing = TimeReads(run, &tables);
    seconds[full] = timing.median_s;
    run.report->Add(RoofPart(run, name, timing, 8.0 * kDim * run.Ids(), 0.55));
  }
  Result spread;
  spread.name = "hashed find, spread between the load factors";
  spread.value = std::fabs(seconds[1] - seconds[0]) / std::min(seconds[0], seconds[1]);
  spread.unit = "of the faster";
  spread.bar = Bar::kAtMost;
  spread.limit = 0.10;
  run.report->Add(spread);
}

// Inserts into a table without a free slot, with values in device memory. Victims are dirty and are
// copied out.
void MeasureInserts(const BenchRun& run) {
  constexpr uint32_t kDim = 64;
  BenchTables tables(run.device, run.Ids(), 4 * kDim);
  const uint64_t slots = run.Rows(4 * kDim);
  tables.Add(BenchShape(kDim, OptimizerKind::kSgd, true), false, slots);
  tables.Insert(0, 0, static_cast<uint64_t>(1.6 * static_cast<double>(slots)));
  const uint32_t count = std::min<uint32_t>(run.Ids(), static_cast<uint32_t>(slots / 4));
  // Rows that are not visited leave in the order of their insertion: after three times as many rows
  // as slots, the first rows are long gone.
  const uint64_t lists = 3 * slots / count;
  std::vector<uint64_t> positions(lists * count);
  for (uint64_t k = 0; k < positions.size(); ++k) positions[k] = Mix64(10 * slots + k);
  const uint64_t* const fresh = tables.memory()->Send(positions);
  // The values are those of present rows.
  tables.SetBatch({Segment()}, Drawn(tables.ResidentIds(0), count, 5));
  tables.Read(true);
  uint64_t next = 0;
  const auto evicting = [&]() { tables.InsertAt(fresh + next++ % lists * count, count); };
  const Timing insert = TimeOf(run.device, evicting, run.samples);
  // The victim and the new row, each read and written.
  run.report->Add(
      RoofPart(run, "evicting insert, dim 64, load factor 1.0", insert, 16.0 * kDim * count, 0.35));
  // Every other key is of the previous list, which is present: all are answered, found or not.
  std::vector<uint64_t> mixed(positions.size()), ids(positions.size());
  for (uint64_t k = 0; k < mixed.size(); ++k) {
    const uint64_t before = (k + mixed.size() - count) % mixed.size();
    mixed[k] = k % 2 == 0 ? positions[k] : positions[before / 2 * 2];
    ids[k] = Unmix64(mixed[k]);
  }
  tables.SetBatch({Segment()}, {0});
  const uint64_t* const keys = tables.memory()->Send(mixed);
  const uint64_t* const key_ids = tables.memory()->Send(ids);
  const auto find_or_insert = [&]() {
    const uint64_t first = next++ % lists * count;
    tables.InsertAt(keys + first, count);
    tables.ReadAt(key_ids + first, count);
  };
  run.report->Add(RoofPart(run, "find-or-insert, dim 64, load factor 1.0, half found",
                           TimeOf(run.device, find_or_insert, run.samples),
                           (16.0 * kDim / 2 + 8.0 * kDim) * count, 0.35));
}

namespace {

// Probe and gather, with `update` also sort, reduce and Adam, of one message over several tables.
Timing TimeTables(const BenchRun& run, uint32_t table_count, bool update) {
  constexpr uint32_t kDim = 32;
  const uint32_t of_table = run.Ids() / table_count;
  BenchTables tables(run.device, of_table * table_count, 4 * kDim);
  const uint64_t slots = std::max<uint64_t>(256, run.Rows(12 * kDim) / table_count);
  const RowShape shape = BenchShape(kDim, OptimizerKind::kAdam, true);
  std::vector<Segment> segments;
  std::vector<uint64_t> ids;
  for (uint32_t t = 0; t < table_count; ++t) {
    tables.Add(shape, false, slots);
    tables.Insert(t, 0, slots / 2);
    Segment segment;
    segment.table = t;
    segment.first = static_cast<uint32_t>(ids.size());
    segment.rows_at = uint64_t{segment.first} * 4 * kDim;
    segment.scalars = ResolveScalars(shape.optimizer, 0.01f, 1);
    segments.push_back(segment);
    for (uint32_t k = 0; k < of_table; ++k) ids.push_back(Mix64(ids.size()) % (slots / 2));
  }
  tables.SetBatch(segments, ids);
  return TimeOf(
      run.device,
      [&]() {
        tables.Read(true);
        if (!update) return;
        tables.SortForUpdate();
        tables.Step(OptimizerKind::kAdam);
      },
      run.samples);
}

}  // namespace

void MeasureTableCounts(const BenchRun& run) {
  for (const bool update : {false, true}) {
    const Timing few = TimeTables(run, 10, update);
    Result result;
    result.name = update ? "training step, dim 32: 1,000 tables against 10"
                         : "probe and gather, dim 32: 1,000 tables against 10";
    result.timing = TimeTables(run, 1000, update);
    result.value = result.timing.median_s / few.median_s;
    result.unit = "times";
    result.bar = Bar::kAtMost;
    result.limit = 1.2;
    char detail[64];
    std::snprintf(detail, sizeof(detail), "10 tables %.3f ms", 1e3 * few.median_s);
    result.detail = detail;
    run.report->Add(result);
  }
}

}  // namespace device
}  // namespace hotbed
