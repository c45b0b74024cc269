// From statuses to the exceptions of hotbed/errors.py.
#ifndef HOTBED_PYTHON_BINDING_ERRORS_H_
#define HOTBED_PYTHON_BINDING_ERRORS_H_

#include "python/binding/python_api.h"
// After Python's header, which insists on being the first.
#include <string>

#include "absl/status/status.h"

namespace hotbed::python {

// Sets the exception of a status that is not OK. Returns null.
PyObject* Raise(const absl::Status& status);
// ArrayError: an argument of a wrong type, shape or place. `argument` as the caller knows it.
bool RaiseArray(const std::string& argument, const std::string& was, const std::string& allowed);
// An exception of hotbed/errors.py, by its name.
PyObject* RaiseNamed(const char* name, const std::string& message);

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_ERRORS_H_
