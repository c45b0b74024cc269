// Parts that calls for the rows nearest to vectors share.
#ifndef HOTBED_PYTHON_BINDING_NEAREST_H_
#define HOTBED_PYTHON_BINDING_NEAREST_H_

#include <vector>

#include "common/scored_row.h"
#include "python/binding/python_api.h"
#include "row_math/metric.h"

namespace hotbed::python {

// False, and an exception: `word` is none of dot, cosine and l2.
bool ReadMetric(const char* word, RowMetric* metric);

// (rows per vector, ids of all rows as bytes of u64, scores as bytes of fp64); null and an
// exception where there is no memory.
PyObject* NearestOf(const std::vector<std::vector<ScoredRow>>& nearest);

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_NEAREST_H_
