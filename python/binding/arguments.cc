#include "python/binding/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/tables/table_option.h"
#include "common/tables/table_spec.h"
#include "python/binding/errors.h"

namespace hotbed::python {
namespace {

const std::vector<std::string>& RowTypeWords() {
  static const auto* const words = new std::vector<std::string>{"fp32", "fp16", "bf16", "int8"};
  return *words;
}

// An option of which only `low..high` fits its field.
template <typename T>
bool ReadWhole(PyObject* object, const char* name, int64_t low, int64_t high, T* value) {
  int64_t read = 0;
  if (!ReadInteger(object, name, &read)) return false;
  if (read < low || read > high) {
    Raise(absl::InvalidArgumentError(
        absl::StrCat(name, " is ", read, "; allowed: ", low, " to ", high)));
    return false;
  }
  *value = static_cast<T>(read);
  return true;
}

bool ReadClientOption(const std::string& name, PyObject* value, ClientOptions* options) {
  const char* const n = name.c_str();
  if (name == "session") return ReadText(value, &options->session_name);
  if (name == "deadline") return ReadSeconds(value, n, &options->deadline);
  if (name == "pull_type") return ReadRowType(value, n, &options->pull_type);
  if (name == "push_type") return ReadRowType(value, n, &options->push_type);
  if (name == "trainer_group") return ReadText(value, &options->trainer_group);
  if (name == "trainer_lease") return ReadSeconds(value, n, &options->trainer_lease);
  if (name == "trainers") return ReadWhole(value, n, 1, 65536, &options->trainers);
  if (name == "threads") return ReadWhole(value, n, 1, 64, &options->threads);
  if (name == "message_bytes_max") return ReadUnsigned(value, n, &options->message_bytes_max);
  if (name == "pulls_in_flight_max") {
    return ReadWhole(value, n, 1, 65536, &options->pulls_in_flight_max);
  }
  if (name == "pushes_in_flight_max") {
    return ReadWhole(value, n, 1, 65536, &options->pushes_in_flight_max);
  }
  PyErr_Format(PyExc_TypeError, "unknown option \"%s\" of a client", n);
  return false;
}

}  // namespace

bool ReadText(PyObject* object, std::string* text) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == nullptr) return false;
  text->assign(data, static_cast<size_t>(size));
  return true;
}

bool ReadRowType(PyObject* object, const char* name, RowType* type) {
  std::string word;
  if (!ReadText(object, &word)) return false;
  const auto& words = RowTypeWords();
  const auto at = std::find(words.begin(), words.end(), word);
  if (at == words.end()) {
    Raise(absl::InvalidArgumentError(
        absl::StrCat(name, " is \"", word, "\"; allowed: ", absl::StrJoin(words, ", "))));
    return false;
  }
  *type = static_cast<RowType>(at - words.begin());
  return true;
}

bool ReadInteger(PyObject* object, const char* name, int64_t* value) {
  const Owned index(PyNumber_Index(object));
  *value = index ? PyLong_AsLongLong(index.get()) : -1;
  if (*value != -1 || PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  const Owned shown(PyObject_Repr(object));
  return RaiseArray(name, shown ? PyUnicode_AsUTF8AndSize(shown.get(), nullptr) : "something else",
                    "a whole number below 2^63");
}

bool ReadUnsigned(PyObject* object, const char* name, uint64_t* value) {
  const Owned index(PyNumber_Index(object));
  *value = index ? PyLong_AsUnsignedLongLong(index.get()) : ~uint64_t{0};
  if (*value != ~uint64_t{0} || PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  const Owned shown(PyObject_Repr(object));
  return RaiseArray(name, shown ? PyUnicode_AsUTF8AndSize(shown.get(), nullptr) : "something else",
                    "a whole number of 0 and more");
}

bool ReadNumber(PyObject* object, const char* name, double* value) {
  *value = PyFloat_AsDouble(object);
  if (*value != -1.0 || PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  return RaiseArray(name, "no number", "a number");
}

bool ReadSeconds(PyObject* object, const char* name, absl::Duration* duration) {
  double seconds = 0;
  if (object == Py_None) return true;
  if (!ReadNumber(object, name, &seconds)) return false;
  *duration = absl::Seconds(seconds);
  return true;
}

bool ReadClientOptions(PyObject* dict, ClientOptions* options) {
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    std::string name;
    if (!ReadText(key, &name) || !ReadClientOption(name, value, options)) return false;
  }
  return true;
}

bool ReadPushOptions(PyObject* tuple, PushOptions* options, std::string* traceparent) {
  PyObject* deadline = nullptr;
  PyObject* rate = nullptr;
  int assign = 0;
  const char* trace = nullptr;
  if (PyArg_ParseTuple(tuple, "OOpffz", &deadline, &rate, &assign, &options->gradient_scale,
                       &options->clip_global_norm, &trace) == 0) {
    return false;
  }
  if (trace != nullptr) *traceparent = trace;
  options->assign = assign != 0;
  if (!ReadSeconds(deadline, "deadline", &options->deadline)) return false;
  if (rate == Py_None) return true;
  double value = 0;
  if (!ReadNumber(rate, "learning_rate", &value)) return false;
  options->has_learning_rate = true;
  options->learning_rate = static_cast<float>(value);
  return true;
}

absl::Status ReadTable(PyObject* items, TableOptions* spec, bool* failed) {
  const Py_ssize_t count = PyTuple_Size(items);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    const char* text = nullptr;
    *failed = PyArg_ParseTuple(PyTuple_GetItem(items, i), "ss", &name, &text) == 0;
    if (*failed) return absl::OkStatus();
    const TableOption* const option = FindTableOption(name);
    if (option == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("table ", spec->name, ": unknown option \"",
                                                     name, "\"; docs/tables.md lists all of them"));
    }
    const absl::Status set = SetTableOption(*option, text, spec);
    if (!set.ok()) {
      return absl::Status(
          set.code(), absl::StrCat("table ", spec->name, ": ", option->name, ": ", set.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace hotbed::python
