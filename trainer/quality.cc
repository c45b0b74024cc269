#include "trainer/quality.h"

#include <algorithm>
#include <cmath>

namespace hotbed {

double BinaryScores::Auc() const {
  const uint64_t negatives = size() - positives_;
  if (positives_ == 0 || negatives == 0) return 0.5;
  std::vector<std::pair<float, bool>> sorted = scores_;
  std::sort(sorted.begin(), sorted.end());
  // Twice the number of (positive, negative) pairs in the right order; a tie counts as one.
  double doubled = 0;
  uint64_t negatives_below = 0;
  for (size_t i = 0; i < sorted.size();) {
    size_t limit = i;
    uint64_t tied_positives = 0;
    while (limit < sorted.size() && sorted[limit].first == sorted[i].first) {
      tied_positives += sorted[limit++].second;
    }
    const uint64_t tied_negatives = (limit - i) - tied_positives;
    doubled += static_cast<double>(tied_positives) *
               static_cast<double>(2 * negatives_below + tied_negatives);
    negatives_below += tied_negatives;
    i = limit;
  }
  return doubled / (2.0 * static_cast<double>(positives_) * static_cast<double>(negatives));
}

double BinaryScores::LogLoss() const {
  if (scores_.empty()) return 0;
  double sum = 0;
  for (const auto& [logit, label] : scores_) {
    const double x = label ? -logit : logit;
    sum += std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  }
  return sum / static_cast<double>(scores_.size());
}

double SquaredErrors::Rmse() const {
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

}  // namespace hotbed
