// Counters and histograms for the hot path: per-thread cells that are merged when they are read. A
// Prometheus histogram would take a lock per observation. admin/ exposes the values.
//
//   static Counter rows_pulled("hotbed_server_pulled_rows_total", "Rows answered to pulls.",
//                              {{"wire", "fp32"}});
//   rows_pulled.Add(512);
//   static LatencyHistogram pull_seconds("hotbed_server_pull_seconds",
//                                        "From the message's arrival to its answer.");
//   pull_seconds.RecordNs(ns);
//
// Add and RecordNs are wait-free and touch only the calling thread's cache lines. Metrics register
// themselves for the life of the process; names follow Prometheus's rules (base units, _total for
// counters) and carry the prefix hotbed_.
#ifndef HOTBED_COMMON_METRICS_H_
#define HOTBED_COMMON_METRICS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace hotbed {

using Labels = std::vector<std::pair<std::string, std::string>>;

// Threads hash onto cells. Threads that share a cell are slower and still counted correctly.
constexpr int kMetricCells = 16;

class Counter {
 public:
  Counter(std::string name, std::string help, Labels labels = {});
  ~Counter();
  Counter(const Counter&) = delete;
  void Add(uint64_t n);
  uint64_t Value() const;

 private:
  struct alignas(64) Cell {
    std::atomic<uint64_t> value{0};
  };
  Cell cells_[kMetricCells];
};

// Log-linear buckets: 8 per power of two from 1 us to 64 s, so quantiles are within 12.5 %.
class LatencyHistogram {
 public:
  LatencyHistogram(std::string name, std::string help, Labels labels = {});
  ~LatencyHistogram();
  LatencyHistogram(const LatencyHistogram&) = delete;
  void RecordNs(int64_t ns);

  struct Snapshot {
    uint64_t count = 0;
    double sum_seconds = 0;
    // (upper bound in seconds, observations at or below)
    std::vector<std::pair<double, uint64_t>> cumulative;
    double Quantile(double q) const;  // seconds
  };
  Snapshot Read() const;

 private:
  struct Cells;
  Cells* cells_;
};

// All that a scrape sees: every registered Counter and LatencyHistogram, and the samples of the
// callbacks.
struct MetricSample {
  enum class Type { kCounter, kGauge, kHistogram };
  std::string name;
  std::string help;
  Type type = Type::kGauge;
  Labels labels;
  double value = 0;
  LatencyHistogram::Snapshot histogram;
};

// Adds a sample of a counter, if the name ends in _total, or of a gauge.
void AddSample(std::string name, std::string help, Labels labels, double value,
               std::vector<MetricSample>* samples);

// Samples sorted by name, then labels.
std::vector<MetricSample> CollectMetrics();

// Adds samples at scrape time, such as gauges read from a status struct. The registration ends when
// the handle is destroyed.
class MetricSource {
 public:
  explicit MetricSource(std::function<void(std::vector<MetricSample>*)> collect);
  ~MetricSource();
  MetricSource(const MetricSource&) = delete;

 private:
  uint64_t id_;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_METRICS_H_
