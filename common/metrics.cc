#include "common/metrics.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {
namespace {

// Bucket b > 0 holds (lower, upper] ns with eight steps per power of two, from 2^10 ns to 2^36 ns
// (68.7 s). Bucket 0 holds values up to 2^10 ns. Longer values count in `count` alone, like
// Prometheus's +Inf bucket.
constexpr int kFirstExponent = 10;
constexpr int kLastExponent = 36;
constexpr int kStepsLog2 = 3;
constexpr int kSteps = 1 << kStepsLog2;
constexpr int kBuckets = 1 + (kLastExponent - kFirstExponent) * kSteps;
constexpr int kOverflow = kBuckets;

int BucketOfNs(int64_t ns) {
  if (ns <= int64_t{1} << kFirstExponent) return 0;
  const uint64_t v = static_cast<uint64_t>(ns) - 1;  // upper bounds are inclusive
  const int exponent = 63 - __builtin_clzll(v);
  if (exponent >= kLastExponent) return kOverflow;
  const int step = static_cast<int>(v >> (exponent - kStepsLog2)) & (kSteps - 1);
  return 1 + (exponent - kFirstExponent) * kSteps + step;
}

double UpperBoundSeconds(int bucket) {
  if (bucket == 0) return 1e-9 * (int64_t{1} << kFirstExponent);
  const int exponent = kFirstExponent + (bucket - 1) / kSteps;
  const int64_t step = (bucket - 1) % kSteps;
  return 1e-9 * static_cast<double>((kSteps + step + 1) << (exponent - kStepsLog2));
}

int ThreadCell() {
  static std::atomic<uint32_t> next{0};
  thread_local const int cell =
      static_cast<int>(next.fetch_add(1, std::memory_order_relaxed) % kMetricCells);
  return cell;
}

struct Description {
  std::string name;
  std::string help;
  Labels labels;
};

// Leaked: metrics with static storage deregister during process exit.
struct Registry {
  absl::Mutex mutex;
  std::map<const Counter*, Description> counters ABSL_GUARDED_BY(mutex);
  std::map<const LatencyHistogram*, Description> histograms ABSL_GUARDED_BY(mutex);

  // Separate from the other mutex and held while callbacks run: the destructor of a source waits
  // for them, and a callback may create counters.
  absl::Mutex sources_mutex;
  std::map<uint64_t, std::function<void(std::vector<MetricSample>*)>> sources
      ABSL_GUARDED_BY(sources_mutex);
  uint64_t next_source ABSL_GUARDED_BY(sources_mutex) = 1;
};

Registry& Metrics() {
  static Registry* const registry = new Registry;
  return *registry;
}

void MergeInto(MetricSample* to, const MetricSample& from) {
  to->value += from.value;
  if (to->type != MetricSample::Type::kHistogram) return;
  LatencyHistogram::Snapshot& sum = to->histogram;
  sum.count += from.histogram.count;
  sum.sum_seconds += from.histogram.sum_seconds;
  for (size_t i = 0; i < sum.cumulative.size() && i < from.histogram.cumulative.size(); ++i) {
    sum.cumulative[i].second += from.histogram.cumulative[i].second;
  }
}

MetricSample SampleOf(const Description& description, MetricSample::Type type) {
  MetricSample sample;
  sample.name = description.name;
  sample.help = description.help;
  sample.labels = description.labels;
  sample.type = type;
  return sample;
}

}  // namespace

Counter::Counter(std::string name, std::string help, Labels labels) {
  Registry& registry = Metrics();
  absl::MutexLock lock(&registry.mutex);
  registry.counters[this] = {std::move(name), std::move(help), std::move(labels)};
}

Counter::~Counter() {
  Registry& registry = Metrics();
  absl::MutexLock lock(&registry.mutex);
  registry.counters.erase(this);
}

void Counter::Add(uint64_t n) {
  cells_[ThreadCell()].value.fetch_add(n, std::memory_order_relaxed);
}

uint64_t Counter::Value() const {
  uint64_t sum = 0;
  for (const Cell& cell : cells_) sum += cell.value.load(std::memory_order_relaxed);
  return sum;
}

struct LatencyHistogram::Cells {
  struct alignas(64) Cell {
    std::atomic<uint64_t> sum_ns{0};
    std::atomic<uint64_t> counts[kBuckets + 1] = {};
  };
  Cell cells[kMetricCells];
};

LatencyHistogram::LatencyHistogram(std::string name, std::string help, Labels labels)
    : cells_(new Cells) {
  Registry& registry = Metrics();
  absl::MutexLock lock(&registry.mutex);
  registry.histograms[this] = {std::move(name), std::move(help), std::move(labels)};
}

LatencyHistogram::~LatencyHistogram() {
  Registry& registry = Metrics();
  {
    absl::MutexLock lock(&registry.mutex);
    registry.histograms.erase(this);
  }
  delete cells_;
}

void LatencyHistogram::RecordNs(int64_t ns) {
  Cells::Cell& cell = cells_->cells[ThreadCell()];
  cell.counts[BucketOfNs(ns)].fetch_add(1, std::memory_order_relaxed);
  cell.sum_ns.fetch_add(std::max<int64_t>(ns, 0), std::memory_order_relaxed);
}

LatencyHistogram::Snapshot LatencyHistogram::Read() const {
  Snapshot snapshot;
  uint64_t sum_ns = 0;
  uint64_t counts[kBuckets + 1] = {};
  for (const Cells::Cell& cell : cells_->cells) {
    sum_ns += cell.sum_ns.load(std::memory_order_relaxed);
    for (int b = 0; b <= kBuckets; ++b) counts[b] += cell.counts[b].load(std::memory_order_relaxed);
  }
  snapshot.sum_seconds = 1e-9 * static_cast<double>(sum_ns);
  snapshot.cumulative.reserve(kBuckets);
  for (int b = 0; b < kBuckets; ++b) {
    snapshot.count += counts[b];
    snapshot.cumulative.emplace_back(UpperBoundSeconds(b), snapshot.count);
  }
  snapshot.count += counts[kOverflow];
  return snapshot;
}

double LatencyHistogram::Snapshot::Quantile(double q) const {
  if (count == 0) return 0;
  const double rank = std::clamp(q, 0.0, 1.0) * static_cast<double>(count);
  double lower = 0;
  uint64_t below = 0;
  for (const auto& [upper, at_or_below] : cumulative) {
    if (at_or_below > below && static_cast<double>(at_or_below) >= rank) {
      const double inside =
          (rank - static_cast<double>(below)) / static_cast<double>(at_or_below - below);
      return lower + (upper - lower) * std::max(inside, 0.0);
    }
    lower = upper;
    below = at_or_below;
  }
  return lower;  // beyond the last bucket: at least this
}

void AddSample(std::string name, std::string help, Labels labels, double value,
               std::vector<MetricSample>* samples) {
  MetricSample& sample = samples->emplace_back();
  sample.type =
      absl::EndsWith(name, "_total") ? MetricSample::Type::kCounter : MetricSample::Type::kGauge;
  sample.name = std::move(name);
  sample.help = std::move(help);
  sample.labels = std::move(labels);
  sample.value = value;
}

std::vector<MetricSample> CollectMetrics() {
  Registry& registry = Metrics();
  std::vector<MetricSample> samples;
  {
    absl::MutexLock lock(&registry.sources_mutex);
    for (const auto& [id, collect] : registry.sources) collect(&samples);
  }
  {
    absl::MutexLock lock(&registry.mutex);
    for (const auto& [counter, description] : registry.counters) {
      samples.push_back(SampleOf(description, MetricSample::Type::kCounter));
      samples.back().value = static_cast<double>(counter->Value());
    }
    for (const auto& [histogram, description] : registry.histograms) {
      samples.push_back(SampleOf(description, MetricSample::Type::kHistogram));
      samples.back().histogram = histogram->Read();
    }
  }
  std::stable_sort(samples.begin(), samples.end(),
                   [](const MetricSample& a, const MetricSample& b) {
                     return std::tie(a.name, a.labels) < std::tie(b.name, b.labels);
                   });
  // A series occurs once per scrape: the counts of several objects with the same name and labels
  // are added up.
  std::vector<MetricSample> merged;
  for (MetricSample& sample : samples) {
    if (!merged.empty() && merged.back().name == sample.name &&
        merged.back().labels == sample.labels) {
      MergeInto(&merged.back(), sample);
    } else {
      merged.push_back(std::move(sample));
    }
  }
  return merged;
}

MetricSource::MetricSource(std::function<void(std::vector<MetricSample>*)> collect) {
  Registry& registry = Metrics();
  absl::MutexLock lock(&registry.sources_mutex);
  id_ = registry.next_source++;
  registry.sources[id_] = std::move(collect);
}

MetricSource::~MetricSource() {
  Registry& registry = Metrics();
  absl::MutexLock lock(&registry.sources_mutex);
  registry.sources.erase(id_);
}

}  // namespace hotbed
