#include "tests/device/ptx/ptx_profile.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace hotbed {
namespace device {
namespace {

// Cycles from issue to result.
constexpr uint64_t kPlainCycles = 5;
constexpr uint64_t kLaneExchangeCycles = 25;
constexpr uint64_t kGlobalCycles = 650;
constexpr uint64_t kCachedCycles = 35;
constexpr uint32_t kLinesKept = 64;  // of 128 bytes, by one warp: its share of an L1 cache
constexpr uint64_t kNoLine = ~0ull;

// An H100 or H200 SXM has these.
constexpr double kProcessors = 132;
constexpr double kHertz = 1.7e9;
constexpr double kIssued = 4;                // warp instructions a cycle and processor
constexpr double kBytesPerSecond = 4.24e12;  // of a device-to-device copy
constexpr uint32_t kRegisters = 65536;
constexpr uint32_t kWarpsMax = 64;
constexpr uint32_t kRegistersUnknown = 64;

}  // namespace

void WarpProfile::Begin(uint32_t registers) {
  cycle = end = 0;
  ready.assign(registers, 0);
  last_lines.assign(kLinesKept, kNoLine);
  next_line = 0;
  is_at_work = false;
}

void PtxProfile::BeginLaunch(const PtxKernel& kernel, const std::string& label, uint64_t rows) {
  const size_t begin = kernel.full_name.find("RunUnits<");
  const size_t end = kernel.full_name.find(">(");
  const bool is_work = begin != std::string::npos && end != std::string::npos;
  now_ =
      &kernels_[(is_work ? kernel.full_name.substr(begin + 9, end - begin - 9) : kernel.full_name) +
                label];
  ++now_->launches;
  now_->rows += rows;
}

// The result's delay.
uint64_t PtxProfile::Touch(bool is_store, uint32_t touched, const uint64_t* addresses,
                           uint32_t bytes, WarpProfile* warp) {
  std::vector<uint64_t> sectors;
  for (uint32_t rest = touched; rest != 0; rest &= rest - 1) {
    const uint64_t at = addresses[__builtin_ctz(rest)];
    for (uint64_t s = at / 32; s <= (at + bytes - 1) / 32; ++s) sectors.push_back(s);
  }
  warp->is_at_work = true;
  std::sort(sectors.begin(), sectors.end());
  sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
  ++(is_store ? now_->stores : now_->loads);
  now_->sectors += sectors.size();
  uint64_t missed = 0, line = kNoLine;
  bool line_kept = false;
  for (const uint64_t sector : sectors) {
    if (sector / 4 != line) {
      line = sector / 4;
      const auto& kept = warp->last_lines;
      line_kept = std::find(kept.begin(), kept.end(), line) != kept.end();
      if (!line_kept && !is_store) warp->last_lines[warp->next_line++ % kLinesKept] = line;
    }
    missed += !line_kept;
  }
  now_->sectors_missed += is_store ? sectors.size() : missed;
  return missed > 0 ? kGlobalCycles : kCachedCycles;
}

void PtxProfile::Issue(const PtxInstruction& at, uint32_t lanes, uint32_t touched,
                       const uint64_t* addresses, uint32_t bytes, WarpProfile* warp) {
  ++now_->instructions;
  now_->lanes += static_cast<uint64_t>(__builtin_popcount(lanes));
  uint64_t cycle = warp->cycle + 1;
  if (at.guarded) cycle = std::max(cycle, warp->ready[at.guard.index]);
  for (uint32_t i = 0; i < at.from_count; ++i) {
    cycle = std::max(cycle, warp->ready[at.from[i].index]);
  }
  uint64_t delay = kPlainCycles;
  if (at.operation->kind == OperationKind::kSync) delay = kLaneExchangeCycles;
  if (touched != 0) delay = Touch(at.operation->is_store, touched, addresses, bytes, warp);
  for (uint32_t i = 0; i < at.to_count; ++i) warp->ready[at.to[i].index] = cycle + delay;
  warp->cycle = cycle;
  if (!at.operation->is_store) warp->end = std::max(warp->end, cycle + delay);
}

// The cost of a row on a GPU, by the scarcest of three resources.
std::string PtxProfile::ReportOf(const std::string& name, const KernelCounts& counts,
                                 uint32_t registers) {
  const uint32_t warps =
      std::min(kWarpsMax, kRegisters / (32 * std::max(8u, (registers + 7) / 8 * 8)) / 8 * 8);
  const double rows = static_cast<double>(std::max<uint64_t>(1, counts.rows));
  const double issued = static_cast<double>(std::max<uint64_t>(1, counts.instructions)) / rows;
  const double cycles = static_cast<double>(std::max<uint64_t>(1, counts.cycles)) / rows;
  const double bytes =
      32.0 * static_cast<double>(std::max<uint64_t>(1, counts.sectors_missed)) / rows;
  const double by_latency = warps * kProcessors * kHertz / cycles;
  const double by_issue = kIssued * kProcessors * kHertz / issued;
  const double by_bytes = kBytesPerSecond / bytes;
  const double least = std::min({by_latency, by_issue, by_bytes});
  const char* const bound = least == by_latency ? "latency"
                            : least == by_issue ? "issue"
                                                : "bandwidth";
  const auto of_row = [&](uint64_t count) { return static_cast<double>(count) / rows; };
  char text[768];
  std::snprintf(
      text, sizeof(text),
      "%s: %llu rows in %llu launches\n"
      "  a row: %.1f warp instructions of %.1f lanes, %.2f global loads, %.2f global stores, %.1f "
      "sectors, %.1f of them past the L1 cache, %.0f cycles of a warp\n"
      "  an H200, %u registers, %u warps a multiprocessor: %.3g rows/s, bound by %s (latency %.3g, "
      "issue %.3g, bandwidth %.3g)\n",
      name.c_str(), static_cast<unsigned long long>(counts.rows),
      static_cast<unsigned long long>(counts.launches), issued,
      static_cast<double>(counts.lanes) / (issued * rows), of_row(counts.loads),
      of_row(counts.stores), of_row(counts.sectors), of_row(counts.sectors_missed), cycles,
      registers, warps, least, bound, by_latency, by_issue, by_bytes);
  return text;
}

std::string PtxProfile::Report(const std::map<std::string, uint32_t>& registers) const {
  std::string report =
      "A model, not a measurement: PTX instructions in order, latencies that are fixed, and an "
      "H100 "
      "or H200 of 132 multiprocessors at 1.7 GHz and 4.0e12 bytes/s.\n";
  for (const auto& [name, counts] : kernels_) {
    uint32_t of_thread = kRegistersUnknown;
    for (const auto& [part, count] : registers) {
      if (name.find(part) != std::string::npos) of_thread = count;
    }
    report += ReportOf(name, counts, of_thread);
  }
  return report;
}

}  // namespace device
}  // namespace hotbed
