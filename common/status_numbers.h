// The numbers that an object shows, each under a key in /api/status and a name in /metrics. The
// object adds them where it counts them, so that a new number touches one file. Thread-compatible.
#ifndef HOTBED_COMMON_STATUS_NUMBERS_H_
#define HOTBED_COMMON_STATUS_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/metrics.h"

namespace hotbed {

class StatusNumbers {
 public:
  // The texts are literals. Without `key` the number is in /metrics only, without `metric` in
  // /api/status only.
  struct Number {
    absl::string_view key;
    absl::string_view metric;
    absl::string_view help;
    uint64_t value = 0;
  };

  void Add(absl::string_view key, absl::string_view metric, absl::string_view help,
           uint64_t value) {
    numbers_.push_back({key, metric, help, value});
  }
  // Adds the values of another object of the same kind, whose numbers are the same in order.
  void AddValues(const StatusNumbers& other) {
    if (numbers_.empty()) {
      numbers_ = other.numbers_;
      return;
    }
    for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i].value += other.numbers_[i].value;
  }

  // The number with this key, which there must be; 0 of an object that has shown none at all.
  uint64_t operator[](absl::string_view key) const {
    for (const Number& number : numbers_) {
      if (number.key == key) return number.value;
    }
    HOTBED_CHECK(numbers_.empty()) << "no number has the key " << key;
    return 0;
  }
  const std::vector<Number>& all() const { return numbers_; }
  void AddSamplesTo(std::vector<MetricSample>* samples, const Labels& labels = {}) const {
    for (const Number& number : numbers_) {
      if (number.metric.empty()) continue;
      AddSample(std::string(number.metric), std::string(number.help), labels,
                static_cast<double>(number.value), samples);
    }
  }

 private:
  std::vector<Number> numbers_;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_STATUS_NUMBERS_H_
