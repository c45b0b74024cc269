// Reads arguments of Python's into C++ values. False: an exception is set.
#ifndef HOTBED_PYTHON_BINDING_ARGUMENTS_H_
#define HOTBED_PYTHON_BINDING_ARGUMENTS_H_

#include "python/binding/python_api.h"
// After Python's header, which insists on being the first.
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "hotbed/client.h"

namespace hotbed::python {

bool ReadText(PyObject* object, std::string* text);
bool ReadInteger(PyObject* object, const char* name, int64_t* value);
bool ReadUnsigned(PyObject* object, const char* name, uint64_t* value);
bool ReadNumber(PyObject* object, const char* name, double* value);
// Seconds; None is zero, which leaves a call its default.
bool ReadSeconds(PyObject* object, const char* name, absl::Duration* duration);
// "fp32", "fp16", "bf16" or "int8".
bool ReadRowType(PyObject* object, const char* name, RowType* type);
// A dict of client options by the names of ClientOptions; unknown ones are an error.
bool ReadClientOptions(PyObject* dict, ClientOptions* options);
// The options of a table by the names of docs/tables.md: ((option, text), ...). `failed`: an
// exception is set.
absl::Status ReadTable(PyObject* items, TableOptions* spec, bool* failed);
// (deadline, learning_rate or None, assign, gradient_scale, clip_global_norm, traceparent or None)
bool ReadPushOptions(PyObject* tuple, PushOptions* options, std::string* traceparent);

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_ARGUMENTS_H_
