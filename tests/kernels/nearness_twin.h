// How near a row is to a vector, by the words of row_math/nearness.h, one element after another.
#ifndef HOTBED_TESTS_KERNELS_NEARNESS_TWIN_H_
#define HOTBED_TESTS_KERNELS_NEARNESS_TWIN_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "row_math/metric.h"

namespace hotbed {

inline double JoinedTwin(const std::vector<double>& terms) {
  double lanes[8] = {};
  for (size_t j = 0; j < terms.size(); ++j) {
    lanes[j % 8] = lanes[j % 8] + terms[j];
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

inline double NearnessTwin(const std::vector<float>& row, const std::vector<float>& vector,
                           RowMetric metric) {
  std::vector<double> dot, difference, row_square, vector_square;
  for (size_t j = 0; j < row.size(); ++j) {
    const double w = row[j], q = vector[j];
    dot.push_back(w * q);
    difference.push_back((w - q) * (w - q));
    row_square.push_back(w * w);
    vector_square.push_back(q * q);
  }
  if (metric == RowMetric::kDot) return JoinedTwin(dot);
  if (metric == RowMetric::kL2) return JoinedTwin(difference);
  const double w2 = JoinedTwin(row_square), q2 = JoinedTwin(vector_square);
  if (w2 == 0 || q2 == 0) return 0;
  return JoinedTwin(dot) / (std::sqrt(w2) * std::sqrt(q2));
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_KERNELS_NEARNESS_TWIN_H_
