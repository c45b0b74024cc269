// Lookups of served tables.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hotbed/serving.h"
#include "python/binding/arguments.h"
#include "python/binding/arrays.h"
#include "python/binding/calls.h"
#include "python/binding/errors.h"
#include "python/binding/handles.h"
#include "python/binding/interrupt.h"
#include "python/binding/nearest.h"

namespace hotbed::python {
namespace {

constexpr char kServing[] = "hotbed.serving_client";

struct ServingHandle {
  std::shared_ptr<ServingClient> client;  // null: closed
  int generation = ForkGeneration();
};

// Null, and an exception.
ServingHandle* HandleOf(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kServing) == 0) {
    PyErr_Format(PyExc_TypeError, "expected a %s of this package", kServing);
    return nullptr;
  }
  return static_cast<ServingHandle*>(PyCapsule_GetPointer(capsule, kServing));
}

void Release(std::shared_ptr<ServingClient> client) {
  const WithoutGil without;
  client.reset();
}

// Null, and an exception: the client is closed, or the parent's.
std::shared_ptr<ServingClient> OpenClientOf(PyObject* capsule) {
  const ServingHandle* const handle = HandleOf(capsule);
  if (handle == nullptr) return nullptr;
  if (handle->generation != ForkGeneration()) {
    RaiseNamed("ForkedError",
               "this client was made before the process was forked, and its threads are in the "
               "parent; connect again in this process, or start workers by spawn");
    return nullptr;
  }
  if (handle->client == nullptr) RaiseNamed("ClosedError", "this client is closed");
  return handle->client;
}

// connect_serving(target, connect_timeout, hedge_budget, failure_domain, may_go_back)
PyObject* ConnectServing(PyObject*, PyObject* arguments) {
  const char* target = nullptr;
  PyObject* timeout = nullptr;
  ServingClientOptions options;
  const char* domain = nullptr;
  int may_go_back = 0;
  if (PyArg_ParseTuple(arguments, "sOdsp", &target, &timeout, &options.hedge_budget, &domain,
                       &may_go_back) == 0 ||
      !ReadSeconds(timeout, "connect_timeout", &options.connect_timeout)) {
    return nullptr;
  }
  options.failure_domain = domain;
  options.may_go_back = may_go_back != 0;
  absl::StatusOr<std::unique_ptr<ServingClient>> client;
  {
    const WithoutGil without;
    client = ServingClient::Connect(target, options);
  }
  if (!client.ok()) return Raise(client.status());
  auto handle = std::make_unique<ServingHandle>();
  handle->client = *std::move(client);
  PyObject* const capsule = PyCapsule_New(handle.get(), kServing, [](PyObject* made) {
    auto* const held = static_cast<ServingHandle*>(PyCapsule_GetPointer(made, kServing));
    // A child process has the client without its threads: it is left alone.
    if (held->generation != ForkGeneration()) return;
    Release(std::move(held->client));
    delete held;
  });
  if (capsule != nullptr) static_cast<void>(handle.release());
  return capsule;
}

// close_serving(client)
PyObject* CloseServing(PyObject*, PyObject* capsule) {
  ServingHandle* const handle = HandleOf(capsule);
  if (handle == nullptr) return nullptr;
  if (handle->generation == ForkGeneration()) Release(std::move(handle->client));
  return Owned::New(Py_None).Release();
}

// serving_stats(client)
PyObject* ServingStats(PyObject*, PyObject* capsule) {
  const std::shared_ptr<ServingClient> client = OpenClientOf(capsule);
  if (client == nullptr) return nullptr;
  const ServingClientStats stats = client->stats();
  return Py_BuildValue("{sKsKsKsK}", "calls", stats.calls, "hedges", stats.hedges, "hedges_won",
                       stats.hedges_won, "hedges_refused", stats.hedges_refused);
}

// (name, ids, pooling, offsets or None, weights or None)
bool ReadServingIds(PyObject* tuple, Borrowed* borrowed, ServingIds* asked) {
  const char* name = nullptr;
  PyObject *ids = nullptr, *offsets = nullptr, *weights = nullptr;
  int pooling = 0;
  if (PyArg_ParseTuple(tuple, "sOiOO", &name, &ids, &pooling, &offsets, &weights) == 0) {
    return false;
  }
  asked->table = name;
  asked->pooling = static_cast<Pooling>(pooling);
  const std::string place = "table \"" + asked->table + "\": ";
  if (!TakeIds(ids, place + "ids", nullptr, borrowed, &asked->ids) ||
      (offsets != Py_None && !TakeCounts(offsets, place + "offsets", borrowed, &asked->offsets))) {
    return false;
  }
  if (weights == Py_None) return true;
  const auto count = static_cast<int64_t>(asked->ids.size());
  return TakeFloats(weights, place + "weights", count, absl::StrCat(count, " floats, one per id"),
                    borrowed, &asked->weights);
}

// (dim, values, exists, tiers, known, age in seconds, older, server, version, code of the status,
// its message), without a copy of the rows.
PyObject* AnswerOf(PyObject* module, const std::shared_ptr<std::vector<ServingRows>>& all,
                   ServingRows* rows) {
  const Owned values(NewBuffer(module, all, rows->values.data(), "f", sizeof(float),
                               static_cast<int64_t>(rows->values.size())));
  const Owned exists(NewBuffer(module, all, rows->exists.data(), "B", 1,
                               static_cast<int64_t>(rows->exists.size())));
  const Owned tiers(
      NewBuffer(module, all, rows->tiers.data(), "B", 1, static_cast<int64_t>(rows->tiers.size())));
  const Owned known(
      NewBuffer(module, all, rows->known.data(), "B", 1, static_cast<int64_t>(rows->known.size())));
  if (!values || !exists || !tiers || !known) return nullptr;
  const std::string why(rows->status.message());
  PyObject* const older = rows->older ? Py_True : Py_False;
  return Py_BuildValue("(IOOOOdOssis)", rows->dim, values.get(), exists.get(), tiers.get(),
                       known.get(), absl::ToDoubleSeconds(rows->age), older, rows->server.c_str(),
                       rows->version.c_str(), static_cast<int>(rows->status.code()), why.c_str());
}

// serving_lookup(client, (feature, ...), timeout, staleness_max, hedge_after, wire_type, version,
// partial, batch, with_tiers)
PyObject* LookupServed(PyObject* module, PyObject* arguments) {
  PyObject *capsule = nullptr, *features = nullptr, *timeout = nullptr, *staleness = nullptr,
           *hedge_after = nullptr, *wire_type = nullptr;
  ServingLookupOptions options;
  const char* version = nullptr;
  int partial = 0, batch = 0, tiers = 0;
  if (PyArg_ParseTuple(arguments, "OOOOOOsppp", &capsule, &features, &timeout, &staleness,
                       &hedge_after, &wire_type, &version, &partial, &batch, &tiers) == 0 ||
      !ReadSeconds(timeout, "timeout", &options.timeout) ||
      !ReadSeconds(staleness, "staleness_max", &options.staleness_max) ||
      !ReadSeconds(hedge_after, "hedge_after", &options.hedge_after) ||
      !ReadRowType(wire_type, "wire_type", &options.wire_type)) {
    return nullptr;
  }
  if (options.hedge_after < absl::ZeroDuration()) {
    return Raise(absl::InvalidArgumentError(
        absl::StrCat("hedge_after is ", absl::ToDoubleSeconds(options.hedge_after),
                     "; allowed: 0 and more seconds, or None")));
  }
  options.version = version;
  options.partial = partial != 0;
  options.with_tiers = tiers != 0;
  if (batch != 0) options.priority = ServingPriority::kBatch;
  // Another thread may close the client meanwhile.
  std::shared_ptr<ServingClient> client = OpenClientOf(capsule);
  if (client == nullptr) return nullptr;
  Borrowed borrowed;
  std::vector<ServingIds> asked(static_cast<size_t>(PyTuple_Size(features)));
  for (size_t i = 0; i < asked.size(); ++i) {
    PyObject* const feature = PyTuple_GetItem(features, static_cast<Py_ssize_t>(i));
    if (!ReadServingIds(feature, &borrowed, &asked[i])) return nullptr;
  }
  bool interrupted = false;
  options.stop = StopsIf(&interrupted);
  absl::StatusOr<std::vector<ServingRows>> rows;
  {
    const WithoutGil without;
    rows = client->Lookup(asked, options);
    client.reset();
  }
  if (interrupted) return nullptr;
  if (!rows.ok()) return Raise(rows.status());
  const auto all = std::make_shared<std::vector<ServingRows>>(*std::move(rows));
  Owned list(PyList_New(0));
  for (ServingRows& one : *all) {
    const Owned answer(AnswerOf(module, all, &one));
    if (!list || !answer || PyList_Append(list.get(), answer.get()) != 0) return nullptr;
  }
  return list.Release();
}

// serving_top_k(client, table, vectors, k, metric, ids or None, first_id, last_id, timeout,
// staleness_max, version): as NearestOf has it; age in seconds, older, server, version.
PyObject* TopKServed(PyObject*, PyObject* arguments) {
  PyObject *capsule, *vectors, *ids, *timeout, *staleness;
  long long k = 0;
  const char *table = nullptr, *metric = nullptr, *version = nullptr;
  unsigned long long first = 0, last = 0;
  ServingTopKOptions options;
  if (PyArg_ParseTuple(arguments, "OsOLsOKKOOs", &capsule, &table, &vectors, &k, &metric, &ids,
                       &first, &last, &timeout, &staleness, &version) == 0 ||
      !ReadMetric(metric, &options.metric) || !ReadSeconds(timeout, "timeout", &options.timeout) ||
      !ReadSeconds(staleness, "staleness_max", &options.staleness_max)) {
    return nullptr;
  }
  options.version = version;
  options.first_id = first;
  options.last_id = last;
  std::shared_ptr<ServingClient> client = OpenClientOf(capsule);
  if (client == nullptr) return nullptr;
  Borrowed borrowed;
  ArrayView shape;
  absl::Span<const float> floats;
  absl::Span<const uint64_t> only;
  if (!shape.Take(vectors, "vectors", /*writable=*/false) ||
      !TakeFloats(vectors, "vectors", shape.elements(), "floats", &borrowed, &floats)) {
    return nullptr;
  }
  if (ids != Py_None) {
    if (!TakeIds(ids, "filter", nullptr, &borrowed, &only)) return nullptr;
    options.only_ids = only;
  }
  bool interrupted = false;
  options.stop = StopsIf(&interrupted);
  absl::StatusOr<ServingNearest> nearest;
  {
    const uint32_t rows = static_cast<uint32_t>(std::clamp<long long>(k, 0, UINT32_MAX));
    const WithoutGil without;
    nearest = client->TopK(table, floats, rows, options);
    client.reset();
  }
  if (interrupted) return nullptr;
  if (!nearest.ok()) return Raise(nearest.status());
  const Owned rows(NearestOf(nearest->rows));
  if (!rows) return nullptr;
  return Py_BuildValue("(OdOss)", rows.get(), absl::ToDoubleSeconds(nearest->age),
                       nearest->older ? Py_True : Py_False, nearest->server.c_str(),
                       nearest->version.c_str());
}

}  // namespace

PyMethodDef serving_methods[] = {
    {"connect_serving", &ConnectServing, METH_VARARGS, nullptr},
    {"close_serving", &CloseServing, METH_O, nullptr},
    {"serving_stats", &ServingStats, METH_O, nullptr},
    {"serving_lookup", &LookupServed, METH_VARARGS, nullptr},
    {"serving_top_k", &TopKServed, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hotbed::python
