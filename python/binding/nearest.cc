#include "python/binding/nearest.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "python/binding/arrays.h"
#include "python/binding/errors.h"
#include "python/binding/handles.h"

namespace hotbed::python {
namespace {

// Py_BuildValue makes None of a null pointer, which is the data of an empty vector.
template <typename Value>
const char* BytesOf(const std::vector<Value>& values) {
  return values.empty() ? "" : reinterpret_cast<const char*>(values.data());
}

}  // namespace

bool ReadMetric(const char* word, RowMetric* metric) {
  for (const auto& [name, value] :
       {std::pair("dot", RowMetric::kDot), std::pair("cosine", RowMetric::kCosine),
        std::pair("l2", RowMetric::kL2)}) {
    *metric = value;
    if (std::string_view(word) == name) return true;
  }
  Raise(absl::InvalidArgumentError(
      absl::StrCat("metric is \"", word, "\", allowed: dot, cosine, l2")));
  return false;
}

PyObject* NearestOf(const std::vector<std::vector<ScoredRow>>& nearest) {
  const Owned counts(PyTuple_New(static_cast<Py_ssize_t>(nearest.size())));
  if (!counts) return nullptr;
  std::vector<uint64_t> found;
  std::vector<double> scores;
  for (size_t v = 0; v < nearest.size(); ++v) {
    PyObject* const count = PyLong_FromSize_t(nearest[v].size());
    if (count == nullptr) return nullptr;
    PyTuple_SetItem(counts.get(), static_cast<Py_ssize_t>(v), count);
    for (const ScoredRow& row : nearest[v]) {
      found.push_back(row.id);
      scores.push_back(row.score);
    }
  }
  return Py_BuildValue("(Oy#y#)", counts.get(), BytesOf(found),
                       static_cast<Py_ssize_t>(found.size() * sizeof(uint64_t)), BytesOf(scores),
                       static_cast<Py_ssize_t>(scores.size() * sizeof(double)));
}

}  // namespace hotbed::python
