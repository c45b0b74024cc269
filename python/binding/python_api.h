// Python's C API, restricted to what every CPython from 3.11 on has (the stable ABI), and owners of
// its objects. Include it before everything else. All of binding/ holds the GIL unless it says
// otherwise; functions that return a null PyObject*, or false, have set an exception.
#ifndef HOTBED_PYTHON_BINDING_PYTHON_API_H_
#define HOTBED_PYTHON_BINDING_PYTHON_API_H_

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace hotbed::python {

// One reference.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* object) : object_(object) {}  // takes the reference over
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  static Owned New(PyObject* object) {
    Py_XINCREF(object);
    return Owned(object);
  }

  PyObject* get() const { return object_; }
  PyObject* Release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Other Python threads run while one lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_PYTHON_API_H_
