// What the kernels reach of the roof, a measured device-to-device copy in the same run.
//
// hotbed-gpu-bench [--scale X] [--samples N] [--device cuda|host] [--number N]. --scale 1 holds 8
// GB of rows; --device host runs the emulation, at a small scale, to see that it works. Bytes are
// those read and written that no algorithm can do without; ids and index are not counted. Exit
// status 77: there is no GPU here.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/device/bench_rows.h"
#include "device/cuda/cuda_device.h"
#include "device/host_device.h"

namespace hotbed {
namespace device {
namespace {

constexpr uint32_t kIds = 1u << 20;
constexpr double kRowBytes = 8e9;  // of the tables that are gathered from

struct Run {
  Device* device;
  double scale;
  int samples;
  double roof = 0;  // bytes/s
  uint32_t Ids() const { return std::max<uint32_t>(1000, std::min(1.0, scale * 8) * kIds); }
  uint64_t Rows(uint32_t row_bytes) const {
    return std::max<uint64_t>(2048, static_cast<uint64_t>(scale * kRowBytes / row_bytes));
  }
};

void Report(const Run& run, const char* name, const Timing& timing, double bytes, double bar) {
  const double rate = bytes / timing.median_s;
  std::printf("%-44s %9.3f ms  p99 %9.3f ms  %8.1f GB/s  %5.2f of the roof (bar %.2f)\n", name,
              1e3 * timing.median_s, 1e3 * timing.p99_s, rate / 1e9, rate / run.roof, bar);
  std::fflush(stdout);
}

void MeasureRoof(Run* run) {
  BenchMemory memory(run->device);
  const uint64_t bytes = static_cast<uint64_t>(std::max(1e6, run->scale * 1e9));
  uint8_t* const from = memory.Take(bytes);
  uint8_t* const to = memory.Take(bytes);
  const Timing timing = TimeOf(
      run->device, [&]() { run->device->CopyWithin(to, from, bytes); }, run->samples);
  run->roof = 2.0 * static_cast<double>(bytes) / timing.median_s;
  std::printf("roof: device-to-device copy of %.3f GB: %.1f GB/s read and written\n",
              static_cast<double>(bytes) / 1e9, run->roof / 1e9);
}

RowShape ShapeOf(uint32_t dim, OptimizerKind kind, bool hashed) {
  RowShape shape;
  shape.seed = 7;
  shape.dim = dim;
  shape.hashed = hashed;
  shape.optimizer.kind = kind;
  shape.initializer = {InitializerKind::kUniform, -0.05f, 0.05f};
  return shape;
}

std::vector<uint64_t> Drawn(const std::vector<uint64_t>& from, uint32_t count, uint64_t seed) {
  std::vector<uint64_t> ids(count);
  for (uint32_t k = 0; k < count; ++k) ids[k] = from[Mix64(seed + k) % from.size()];
  return ids;
}

// Ranks by Zipf's law with exponent `alpha` over `limit` ids, by the inverse of its integral.
std::vector<uint64_t> ZipfIds(uint64_t limit, double alpha, uint32_t count, uint64_t seed) {
  const double power = 1.0 - alpha;
  const double whole = std::pow(static_cast<double>(limit) + 1.0, power) - 1.0;
  std::vector<uint64_t> ids(count);
  for (uint32_t k = 0; k < count; ++k) {
    const double u = static_cast<double>(Mix64(seed + k) >> 11) / 9007199254740992.0;
    const auto rank = static_cast<uint64_t>(std::pow(1.0 + u * whole, 1.0 / power)) - 1;
    ids[k] = Mix64(std::min(rank, limit - 1)) % limit;
  }
  return ids;
}

void MeasureGather(const Run& run, uint32_t dim) {
  BenchTables tables(run.device, run.Ids(), 4 * dim);
  const uint64_t rows = run.Rows(4 * dim);
  const uint32_t table = tables.Add(ShapeOf(dim, OptimizerKind::kSgd, false), true, rows);
  tables.Insert(table, 0, rows);
  std::vector<uint64_t> ids(run.Ids());
  for (uint32_t k = 0; k < ids.size(); ++k) ids[k] = Mix64(k) % rows;
  tables.SetBatch({Segment()}, ids);
  const Timing timing = TimeOf(
      run.device, [&]() { tables.Read(true); }, run.samples);
  const std::string name = "gather, dim " + std::to_string(dim) + ", uniform ids";
  Report(run, name.c_str(), timing, 8.0 * dim * ids.size(), 0.80);
}

void MeasureApply(const Run& run) {
  constexpr uint32_t kDim = 128;
  BenchTables tables(run.device, run.Ids(), 4 * kDim);
  const uint64_t rows = run.Rows(4 * kDim);
  tables.Add(ShapeOf(kDim, OptimizerKind::kRowwiseAdagrad, false), true, rows);
  tables.Insert(0, 0, rows);
  std::vector<uint64_t> ids(std::min<uint64_t>(run.Ids(), rows));
  for (uint32_t k = 0; k < ids.size(); ++k) ids[k] = k * (rows / ids.size());
  for (size_t k = ids.size(); k > 1; --k) std::swap(ids[k - 1], ids[Mix64(k) % k]);
  Segment segment;
  segment.scalars = ResolveScalars(OptimizerParams(), 0.01f, 1);
  tables.SetBatch({segment}, ids);
  tables.Read(false);
  tables.SortForUpdate();
  const Timing timing = TimeOf(
      run.device, [&]() { tables.Step(OptimizerKind::kRowwiseAdagrad); }, run.samples);
  // Gradient and row read, row written, and the statistic both ways.
  Report(run, "row-wise Adagrad, dim 128, unique ids", timing, (12.0 * kDim + 8) * ids.size(),
         0.70);
}

void MeasureFind(const Run& run, double load) {
  constexpr uint32_t kDim = 64;
  BenchTables tables(run.device, run.Ids(), 4 * kDim);
  const uint64_t slots = run.Rows(4 * kDim);
  tables.Add(ShapeOf(kDim, OptimizerKind::kSgd, true), false, slots);
  // Full only when every bucket is: until then the fullest ones give victims.
  tables.Insert(0, 0, static_cast<uint64_t>(load < 1 ? load * slots : 1.6 * slots));
  const std::vector<uint64_t> resident = tables.ResidentIds(0);
  tables.SetBatch({Segment()}, Drawn(resident, run.Ids(), 3));
  const Timing timing = TimeOf(
      run.device, [&]() { tables.Read(true); }, run.samples);
  char name[64];
  std::snprintf(name, sizeof(name), "hashed find, dim 64, load factor %.3f", tables.LoadFactor(0));
  Report(run, name, timing, 8.0 * kDim * run.Ids(), 0.55);
}

// Buckets, sort, insert and release of rows that are not there, in a table without a free slot.
void MeasureInsert(const Run& run) {
  constexpr uint32_t kDim = 64;
  BenchTables tables(run.device, run.Ids(), 4 * kDim);
  const uint64_t slots = run.Rows(4 * kDim);
  tables.Add(ShapeOf(kDim, OptimizerKind::kSgd, true), false, slots);
  tables.Insert(0, 0, static_cast<uint64_t>(1.6 * slots));
  // Rows that nobody visits leave in the order in which they came: after thrice as many as there
  // are slots, the first are gone for long.
  const uint32_t count = std::min<uint32_t>(run.Ids(), static_cast<uint32_t>(slots / 4));
  const uint64_t batches = 3 * slots / count;
  std::vector<uint64_t> positions(batches * count);
  for (uint64_t k = 0; k < positions.size(); ++k) positions[k] = Mix64(10 * slots + k);
  const uint64_t* const fresh = tables.memory()->Send(positions);
  uint64_t next = 0;
  const auto insert = [&]() { tables.InsertAt(fresh + next++ % batches * count, count); };
  const Timing timing = TimeOf(run.device, insert, run.samples);
  // The victim read and written, the new row written.
  Report(run, "evicting insert, dim 64, load factor 1.0", timing, 12.0 * kDim * count, 0.35);
}

// Probe and gather, sort, reduce and step, of one message over several tables.
void MeasureStep(const Run& run, uint32_t table_count, uint32_t dim, bool update) {
  const uint32_t of_table = run.Ids() / table_count;
  BenchTables tables(run.device, of_table * table_count, 4 * dim);
  const uint64_t slots = std::max<uint64_t>(256, run.Rows(12 * dim) / table_count);
  std::vector<Segment> segments;
  std::vector<uint64_t> ids;
  for (uint32_t t = 0; t < table_count; ++t) {
    const uint64_t rows = slots / 2;
    tables.Add(ShapeOf(dim, OptimizerKind::kAdam, true), false, slots);
    tables.Insert(t, 0, rows);
    Segment segment;
    segment.table = t;
    segment.first = static_cast<uint32_t>(ids.size());
    segment.rows_at = uint64_t{segment.first} * 4 * dim;
    segment.scalars = ResolveScalars(ShapeOf(dim, OptimizerKind::kAdam, true).optimizer, 0.01f, 1);
    segments.push_back(segment);
    const std::vector<uint64_t> drawn = ZipfIds(rows, 1.05, of_table, 977ull * t);
    ids.insert(ids.end(), drawn.begin(), drawn.end());
  }
  tables.SetBatch(segments, ids);
  const Timing timing = TimeOf(
      run.device,
      [&]() {
        tables.Read(true);
        if (!update) return;
        tables.SortForUpdate();
        tables.Step(OptimizerKind::kAdam);
      },
      run.samples);
  std::printf("%-44s %9.3f ms  p99 %9.3f ms  (%u tables, %zu ids, dim %u, Zipf 1.05)\n",
              update ? "step: probe, gather, reduce, Adam" : "probe and gather",
              1e3 * timing.median_s, 1e3 * timing.p99_s, table_count, ids.size(), dim);
  std::fflush(stdout);
}

int Measure(Run run) {
  std::printf("%s, scale %g, %d samples of 10 calls\n", run.device->Describe().c_str(), run.scale,
              run.samples);
  MeasureRoof(&run);
  MeasureGather(run, 64);
  MeasureGather(run, 128);
  MeasureApply(run);
  MeasureFind(run, 0.5);
  MeasureFind(run, 1.0);
  MeasureInsert(run);
  MeasureStep(run, 10, 128, true);
  MeasureStep(run, 10, 32, false);
  MeasureStep(run, 1000, 32, false);
  return 0;
}

int Main(int argc, char** argv) {
  std::string kind = "cuda";
  int number = 0;
  Run run = {nullptr, 1.0, 50};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--device") kind = value;
    if (name == "--number") number = std::atoi(value.c_str());
    if (name == "--scale") run.scale = std::atof(value.c_str());
    if (name == "--samples") run.samples = std::atoi(value.c_str());
  }
  if (argc % 2 == 0 || run.scale <= 0 || run.samples <= 0 || (kind != "cuda" && kind != "host")) {
    std::fprintf(stderr,
                 "hotbed-gpu-bench [--scale X] [--samples N] [--device cuda|host] [--number N]\n");
    return 2;
  }
  std::unique_ptr<Device> device = std::make_unique<HostDevice>();
  if (kind == "cuda") {
    const Status status = OpenCudaDevice(number, &device);
    if (!status.ok()) {
      std::fprintf(stderr, "no GPU to measure on: %s\n", status.message.c_str());
      return 77;
    }
  }
  run.device = device.get();
  return Measure(run);
}

}  // namespace
}  // namespace device
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::device::Main(argc, argv); }
