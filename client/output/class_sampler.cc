#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "hotbed/sampled_softmax.h"

namespace hotbed {
namespace {

// Draws for one distinct class, beyond which the rest of the classes is too unlikely.
constexpr uint64_t kDrawsPerClassMax = 1'000;

}  // namespace

absl::StatusOr<ClassSampler> ClassSampler::LogUniform(uint64_t classes) {
  if (classes < 1) return absl::InvalidArgumentError("classes is 0, allowed: 1 or more");
  return ClassSampler(classes, {});
}

absl::StatusOr<ClassSampler> ClassSampler::Frequency(absl::Span<const double> counts,
                                                     double power) {
  if (!std::isfinite(power)) {
    return absl::InvalidArgumentError(
        absl::StrCat("power is ", power, ", allowed: finite numbers"));
  }
  std::vector<double> ends;
  ends.reserve(counts.size());
  double sum = 0;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (!(counts[c] >= 0 && std::isfinite(counts[c]))) {
      return absl::InvalidArgumentError(absl::StrCat("counts: element ", c, " is ", counts[c],
                                                     ", allowed: finite numbers, 0 or more"));
    }
    sum += counts[c] == 0 ? 0 : std::pow(counts[c], power);
    ends.push_back(sum);
  }
  if (!(sum > 0 && std::isfinite(sum))) {
    return absl::InvalidArgumentError(absl::StrCat("the ", counts.size(),
                                                   " counts to the power of ", power, " add up to ",
                                                   sum, ", allowed: a finite sum above 0"));
  }
  for (double& end : ends) end /= sum;
  return ClassSampler(counts.size(), std::move(ends));
}

double ClassSampler::Probability(uint64_t of_class) const {
  if (of_class >= classes_) return 0;
  const double k = static_cast<double>(of_class);
  if (ends_.empty()) return std::log1p(1 / (k + 1)) / std::log1p(static_cast<double>(classes_));
  return ends_[of_class] - (of_class == 0 ? 0 : ends_[of_class - 1]);
}

uint64_t ClassSampler::ClassAt(double place) const {
  if (ends_.empty()) {
    // The sum of the probabilities up to class k is log(k + 2) / log(classes + 1).
    const double k = std::expm1(place * std::log1p(static_cast<double>(classes_)));
    return std::min(classes_ - 1, static_cast<uint64_t>(k));
  }
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), place);
  return std::min<uint64_t>(classes_ - 1, static_cast<uint64_t>(found - ends_.begin()));
}

absl::StatusOr<ClassSampler::Sample> ClassSampler::Draw(uint64_t count, bool distinct,
                                                        uint64_t seed) const {
  Random random(seed);
  Sample sample;
  sample.distinct = distinct;
  absl::flat_hash_set<uint64_t> seen;
  const uint64_t draws_max = distinct ? count * kDrawsPerClassMax : count;
  while (sample.classes.size() < count && sample.draws < draws_max) {
    const uint64_t drawn = ClassAt(random.Double());
    ++sample.draws;
    if (!distinct || seen.insert(drawn).second) sample.classes.push_back(drawn);
  }
  if (sample.classes.size() == count) return sample;
  return absl::InvalidArgumentError(absl::StrCat(
      count, " distinct classes of ", classes_, " are asked for, and ", sample.draws,
      " draws gave ", sample.classes.size(), "; ask for fewer, or not for distinct ones"));
}

double ClassSampler::Expected(const Sample& sample, uint64_t of_class) const {
  const double p = Probability(of_class);
  const double draws = static_cast<double>(sample.draws);
  return sample.distinct ? -std::expm1(draws * std::log1p(-p)) : draws * p;
}

}  // namespace hotbed
