// Vocabularies.
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "hotbed/vocabulary.h"
#include "python/binding/arguments.h"
#include "python/binding/arrays.h"
#include "python/binding/calls.h"
#include "python/binding/errors.h"
#include "python/binding/handles.h"

namespace hotbed::python {
namespace {

constexpr char kVocabulary[] = "hotbed.vocabulary";

struct VocabularyHandle {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Client> client;  // outlives it
  std::unique_ptr<Vocabulary> vocabulary;
};

// Null, with an exception: the capsule is no vocabulary, or may not be used any more.
VocabularyHandle* UsableVocabulary(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kVocabulary) == 0) {
    PyErr_Format(PyExc_TypeError, "expected a %s of this package", kVocabulary);
    return nullptr;
  }
  auto* const handle = static_cast<VocabularyHandle*>(PyCapsule_GetPointer(capsule, kVocabulary));
  if (handle->connection->generation != ForkGeneration()) {
    RaiseNamed("ForkedError", "this vocabulary was opened before the process was forked");
    return nullptr;
  }
  if (handle->connection->client == nullptr) {
    RaiseNamed("ClosedError", "this client is closed");
    return nullptr;
  }
  return handle;
}

// vocabulary(table, deadline or None)
PyObject* OpenVocabulary(PyObject*, PyObject* arguments) {
  PyObject *capsule, *deadline;
  absl::Duration within = absl::ZeroDuration();
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &deadline) == 0 ||
      !ReadSeconds(deadline, "deadline", &within)) {
    return nullptr;
  }
  const TableHandle* const table = TableOf(capsule);
  if (table == nullptr) return nullptr;
  auto opened = Vocabulary::Open(table->connection->client.get(), table->table, within);
  if (!opened.ok()) return Raise(opened.status());
  auto handle = std::make_unique<VocabularyHandle>();
  handle->connection = table->connection;
  handle->client = table->connection->client;
  handle->vocabulary = *std::move(opened);
  PyObject* const made = PyCapsule_New(handle.get(), kVocabulary, [](PyObject* owner) {
    auto* const held = static_cast<VocabularyHandle*>(PyCapsule_GetPointer(owner, kVocabulary));
    // One inherited by fork is left alone: the client's threads are in the parent.
    if (held->connection->generation != ForkGeneration()) return;
    const WithoutGil without;
    delete held;
  });
  if (made != nullptr) static_cast<void>(handle.release());
  return made;
}

// vocabulary_lookup(vocabulary, keys): u32 per key, as bytes
PyObject* LookupKeys(PyObject*, PyObject* arguments) {
  PyObject *capsule, *ids;
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &ids) == 0) return nullptr;
  VocabularyHandle* const handle = UsableVocabulary(capsule);
  if (handle == nullptr) return nullptr;
  Borrowed borrowed;
  absl::Span<const uint64_t> keys;
  if (!TakeIds(ids, "keys", nullptr, &borrowed, &keys)) return nullptr;
  absl::StatusOr<std::vector<uint32_t>> numbers;
  {
    const std::shared_ptr<Client> client = handle->client;
    const WithoutGil without;
    numbers = handle->vocabulary->Lookup(keys);
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!numbers.ok()) return Raise(numbers.status());
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(numbers->data()),
                                   static_cast<Py_ssize_t>(numbers->size() * sizeof(uint32_t)));
}

// vocabulary_size(vocabulary): (given, max, full)
PyObject* SizeOfVocabulary(PyObject*, PyObject* capsule) {
  VocabularyHandle* const handle = UsableVocabulary(capsule);
  if (handle == nullptr) return nullptr;
  absl::StatusOr<VocabularySize> size;
  {
    const std::shared_ptr<Client> client = handle->client;
    const WithoutGil without;
    size = handle->vocabulary->Size();
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!size.ok()) return Raise(size.status());
  return Py_BuildValue("KKK", static_cast<unsigned long long>(size->given),
                       static_cast<unsigned long long>(size->max),
                       static_cast<unsigned long long>(size->full));
}

}  // namespace

PyMethodDef vocabulary_methods[] = {
    {"vocabulary", &OpenVocabulary, METH_VARARGS, nullptr},
    {"vocabulary_lookup", &LookupKeys, METH_VARARGS, nullptr},
    {"vocabulary_size", &SizeOfVocabulary, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hotbed::python
