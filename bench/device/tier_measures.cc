// Rows in two tiers: half of them on the device for reads, 80 % for training steps.
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>

#include "bench/device/bench_measures.h"
#include "bench/device/bench_tiers.h"
#include "bench/device/served_rows.h"

namespace hotbed {
namespace device {
namespace {

constexpr int kWarmUp = 20;                // batches that are not timed
constexpr uint32_t kIdsServed = 1u << 17;  // of dim 64: 32 MiB, as in a server's message
constexpr uint32_t kStepTables = 10;
constexpr uint32_t kStepDim = 128;
constexpr double kStepRows = 1.68e6;  // of a table, at scale 1

// A run over batches of newly drawn ids, each timed by itself; the same for every run of the same
// sizes.
struct TierRun {
  Timing timing;
  TierCounts counts;
  uint64_t missing_first = 0, missing_last = 0;  // of the timed batches
  uint64_t answer = 0;                           // of the last batch
};

// Drawn before anything is timed, because a device that waits for the host slows down.
std::vector<std::vector<uint64_t>> DrawBatches(const TierSizes& sizes, int count) {
  std::vector<std::vector<uint64_t>> batches(static_cast<size_t>(count));
  for (size_t batch = 0; batch < batches.size(); ++batch) {
    for (uint32_t t = 0; t < sizes.tables; ++t) {
      const std::vector<uint64_t> drawn =
          ZipfIds(sizes.rows, sizes.ids, (uint64_t{t} + 1) << 40 | uint64_t{batch} << 24);
      batches[batch].insert(batches[batch].end(), drawn.begin(), drawn.end());
    }
  }
  return batches;
}

TierRun RunBatches(const BenchRun& run, TieredTables* tables, const TierSizes& sizes,
                   const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  TierRun result;
  const auto batches = DrawBatches(sizes, kWarmUp + run.samples);
  for (int batch = 0; batch < kWarmUp + run.samples; ++batch) {
    tables->SetIds(batches[static_cast<size_t>(batch)]);
    if (batch == kWarmUp) tables->ClearCounts();
    const uint64_t missing = tables->counts().missing;
    const auto begin = Clock::now();
    call();
    MustBe(run.device->Wait());
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    if (batch < kWarmUp) continue;
    seconds.push_back(took);
    result.missing_last = tables->counts().missing - missing;
    if (batch == kWarmUp) result.missing_first = result.missing_last;
  }
  std::sort(seconds.begin(), seconds.end());
  result.timing = {seconds[seconds.size() / 2], seconds[seconds.size() * 99 / 100]};
  result.counts = tables->counts();
  result.answer = tables->AnswerSum();
  return result;
}

enum class Call { kReadAll, kReadTiers, kStepAll, kStepTiers };

// Slots for twice the rows where all rows must be on the device, so that no bucket overflows.
TierRun MeasureTiers(const BenchRun& run, TierSizes sizes, double part, Call call) {
  const bool all = call == Call::kReadAll || call == Call::kStepAll;
  sizes.slots = static_cast<uint64_t>((all ? 2.0 : part) * static_cast<double>(sizes.rows));
  TieredTables tables(run.device, sizes);
  tables.Fill(/*dirty=*/call == Call::kStepAll || call == Call::kStepTiers);
  const OptimizerKind kind = sizes.shape.optimizer.kind;
  return RunBatches(run, &tables, sizes, [&]() {
    if (call == Call::kReadAll) tables.ReadAll();
    if (call == Call::kReadTiers) tables.ReadTiers();
    if (call == Call::kStepAll) tables.StepAll(kind);
    if (call == Call::kStepTiers) tables.StepTiers(kind);
  });
}

std::string DetailOf(const BenchRun& run, const TierRun& tiers, const TierRun& all) {
  const double calls = run.samples;
  char text[300];
  std::snprintf(text, sizeof(text),
                "%.4f of the ids found (%llu missing in the first timed call, %llu in the last), "
                "%.0f rows up and %.0f changed ones down a call, %.0f "
                "refused; all on the device %.3f ms; answers %s",
                1.0 - double(tiers.counts.missing) / double(tiers.counts.ids),
                static_cast<unsigned long long>(tiers.missing_first),
                static_cast<unsigned long long>(tiers.missing_last),
                double(tiers.counts.brought) / calls, double(tiers.counts.written) / calls,
                double(tiers.counts.refused), 1e3 * all.timing.median_s,
                tiers.answer == all.answer ? "the same" : "DIFFER");
  return text;
}

}  // namespace

namespace {

struct ServedRun {
  double message_s;  // the time of all messages divided by their number
  Timing timing;     // of one message, from its begin to its complete answer
  ServedCounts counts;
  uint64_t answer = 0;  // of the last message
};

ServedRun RunServed(const BenchRun& run, ServedSizes sizes, double part) {
  using Clock = std::chrono::steady_clock;
  sizes.slots = static_cast<uint64_t>(part * static_cast<double>(sizes.rows));
  ServedRows served(run.device, sizes);
  std::vector<std::vector<uint64_t>> messages;
  for (int message = 0; message < kWarmUp + run.samples; ++message) {
    messages.push_back(ZipfIds(sizes.rows, sizes.ids, uint64_t(message) << 24));
  }
  Clock::time_point begin;
  for (int message = 0; message < kWarmUp + run.samples; ++message) {
    if (message == kWarmUp) {
      served.EndAll();
      served.ClearCounts();
      begin = Clock::now();
    }
    served.Pull(messages[static_cast<size_t>(message)]);
  }
  served.EndAll();
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  std::vector<double> seconds = served.seconds();
  std::sort(seconds.begin(), seconds.end());
  return {took / run.samples,
          {seconds[seconds.size() / 2], seconds[seconds.size() * 99 / 100]},
          served.counts(),
          served.AnswerSum()};
}

}  // namespace

bool MeasureHalfServed(const BenchRun& run) {
  ServedSizes sizes;
  sizes.shape = BenchShape(64, OptimizerKind::kSgd, true);
  sizes.rows = run.Rows(sizes.shape.weight_bytes());
  sizes.ids = std::min(run.Ids(), kIdsServed);
  const ServedRun all = RunServed(run, sizes, 2.0);
  const ServedRun half = RunServed(run, sizes, 0.5);
  Result result;
  result.name = "half the rows on the device, dim 64, Zipf 1.05, answers to pinned host memory";
  result.value = all.message_s / half.message_s;
  result.unit = "of all's rate";
  result.bar = Bar::kAtLeast;
  result.limit = 0.70;
  result.timing = half.timing;
  char text[200];
  std::snprintf(text, sizeof(text),
                "%.4f of the ids found, %.0f rows up a message; all on the device %.3f ms a "
                "message, %.1f GB/s of rows out; answers %s",
                1.0 - double(half.counts.missing) / double(half.counts.ids),
                double(half.counts.brought) / run.samples, 1e3 * all.message_s,
                1e-9 * sizes.shape.weight_bytes() * sizes.ids / all.message_s,
                all.answer == half.answer ? "the same" : "DIFFER");
  result.detail = text;
  run.report->Add(result);
  return all.answer == half.answer;
}

bool MeasureHalfOnDevice(const BenchRun& run) {
  TierSizes sizes;
  sizes.shape = BenchShape(64, OptimizerKind::kSgd, true);
  sizes.rows = run.Rows(sizes.shape.weight_bytes());
  sizes.ids = run.Ids();
  const TierRun all = MeasureTiers(run, sizes, 1.0, Call::kReadAll);
  const TierRun half = MeasureTiers(run, sizes, 0.5, Call::kReadTiers);
  Result result;
  result.name = "half the rows on the device, dim 64, Zipf 1.05, answers left there";
  result.value = all.timing.median_s / half.timing.median_s;
  result.unit = "of all's rate";
  result.bar = Bar::kAtLeast;
  result.limit = 0.60;
  result.timing = half.timing;
  result.detail = DetailOf(run, half, all);
  run.report->Add(result);
  return all.answer == half.answer;
}

bool MeasureTrainingSteps(const BenchRun& run) {
  TierSizes sizes;
  sizes.shape = BenchShape(kStepDim, OptimizerKind::kAdam, true);
  sizes.tables = kStepTables;
  sizes.rows = std::max<uint64_t>(1024, static_cast<uint64_t>(run.scale * kStepRows));
  sizes.ids = run.Ids() / kStepTables;
  const TierRun all = MeasureTiers(run, sizes, 1.0, Call::kStepAll);
  const TierRun part = MeasureTiers(run, sizes, 0.8, Call::kStepTiers);
  Result result;
  result.name = "training step, 10 tables, dim 128, Adam: all there";
  result.value = 1e3 * all.timing.median_s;
  result.unit = "ms";
  result.bar = Bar::kAtMost;
  result.limit = 1.2;
  result.timing = all.timing;
  result.detail = std::to_string(sizes.ids * sizes.tables) + " ids, Zipf 1.05, " +
                  std::to_string(sizes.rows) + " rows a table";
  run.report->Add(result);
  result.name = "training step: device memory for 80 % of the rows";
  result.value = 1e3 * part.timing.median_s;
  result.limit = 8;
  result.timing = part.timing;
  result.detail = DetailOf(run, part, all);
  run.report->Add(result);
  return all.answer == part.answer && part.counts.refused == 0;
}

}  // namespace device
}  // namespace hotbed
