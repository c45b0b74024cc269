// Ctrl-C, while a call waits without the GIL.
#ifndef HOTBED_PYTHON_BINDING_INTERRUPT_H_
#define HOTBED_PYTHON_BINDING_INTERRUPT_H_

#include <functional>

#include "python/binding/python_api.h"

namespace hotbed::python {

// Asked by a call that may be broken off. After true there is an exception, and `*interrupted` is
// set.
inline std::function<bool()> StopsIf(bool* interrupted) {
  return [interrupted] {
    const PyGILState_STATE state = PyGILState_Ensure();
    *interrupted = *interrupted || PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return *interrupted;
  };
}

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_INTERRUPT_H_
