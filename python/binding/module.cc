// The module _hotbed.
#include "python/binding/python_api.h"
// After Python's header, which insists on being the first.
#include "absl/synchronization/mutex.h"
#include "common/log.h"
#include "proto/own_pollers.h"
#include "proto/protobuf_log.h"
#include "python/binding/arrays.h"
#include "python/binding/calls.h"
#include "python/binding/handles.h"

namespace hotbed::python {
namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_hotbed",
    "The C++ client of Hotbed; use the package hotbed.",
    -1,
    client_methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

PyObject* MakeModule() {
  Owned module(PyModule_Create(&definition));
  if (!module || PyModule_AddFunctions(module.get(), embedding_methods) != 0 ||
      PyModule_AddFunctions(module.get(), whole_table_methods) != 0 ||
      PyModule_AddFunctions(module.get(), serving_methods) != 0 ||
      PyModule_AddFunctions(module.get(), output_methods) != 0 ||
      PyModule_AddFunctions(module.get(), vocabulary_methods) != 0 ||
      !AddBufferType(module.get()) ||
      PyModule_AddStringConstant(module.get(), "version", HOTBED_VERSION) != 0) {
    return nullptr;
  }
  // The copy of Abseil is our own. Debian builds it with the detector on: a graph search per lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  StartGrpcWithOwnPollers();
  WatchForks();
  SetLogLevelMin(LogLevel::kWarning);
  LimitProtobufLog();
  return module.Release();
}

}  // namespace
}  // namespace hotbed::python

PyMODINIT_FUNC PyInit__hotbed() { return hotbed::python::MakeModule(); }
