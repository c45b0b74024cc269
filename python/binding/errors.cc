#include "python/binding/errors.h"

#include "absl/strings/str_cat.h"

namespace hotbed::python {
namespace {

// Calls a function of hotbed/errors.py that makes an exception, and sets that. Takes `arguments`.
void Set(const char* function, PyObject* arguments) {
  const Owned owned(arguments);
  const Owned module(PyImport_ImportModule("hotbed.errors"));
  if (!module || !owned) return;
  const Owned make(PyObject_GetAttrString(module.get(), function));
  if (!make) return;
  const Owned exception(PyObject_CallObject(make.get(), arguments));
  if (!exception) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
}

}  // namespace

PyObject* Raise(const absl::Status& status) {
  const std::string message(status.message());
  Set("from_status", Py_BuildValue("(is#)", static_cast<int>(status.code()), message.data(),
                                   static_cast<Py_ssize_t>(message.size())));
  return nullptr;
}

bool RaiseArray(const std::string& argument, const std::string& was, const std::string& allowed) {
  Set("wrong_array", Py_BuildValue("(sss)", argument.c_str(), was.c_str(), allowed.c_str()));
  return false;
}

PyObject* RaiseNamed(const char* name, const std::string& message) {
  Set(name, Py_BuildValue("(s)", message.c_str()));
  return nullptr;
}

}  // namespace hotbed::python
