// Arrays in and out, without a copy where their layout allows: the buffer protocol (numpy, array,
// memoryview) or DLPack (torch, jax), and memory of ours as a buffer.
#ifndef HOTBED_PYTHON_BINDING_ARRAYS_H_
#define HOTBED_PYTHON_BINDING_ARRAYS_H_

#include "python/binding/python_api.h"
// After Python's header, which insists on being the first.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "hotbed/client.h"

namespace hotbed::python {

// A view of an array in host memory, which keeps the array alive. Made and destroyed with the GIL.
class ArrayView {
 public:
  enum class Kind : uint8_t { kSigned, kUnsigned, kFloat, kBfloat, kOther };

  ArrayView() = default;
  ArrayView(ArrayView&& other) noexcept { Swap(&other); }
  ArrayView& operator=(ArrayView&& other) noexcept {
    Swap(&other);
    return *this;
  }
  ~ArrayView();

  // `argument` is its name in errors. An exception says what it is instead: no array, on a device,
  // or read-only where `writable` is asked for.
  bool Take(PyObject* array, const std::string& argument, bool writable);

  char* data() const { return data_; }
  Kind kind() const { return kind_; }
  int64_t item_bytes() const { return item_bytes_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const;
  bool contiguous() const;
  std::string Text() const;  // "float32 of shape (3, 4)"
  // Calls `visit(const char* element)` for all elements in row-major order.
  template <typename Visit>
  void ForEach(Visit visit) const;

 private:
  void Swap(ArrayView* other);
  bool TakeBuffer(PyObject* array, const std::string& argument, bool writable);
  bool TakeDlpack(PyObject* array, const std::string& argument);
  bool SetType(const char* format);

  Py_buffer buffer_ = {};    // buffer_.obj null: none
  void* managed_ = nullptr;  // a DLManagedTensor
  char* data_ = nullptr;
  Kind kind_ = Kind::kOther;
  int64_t item_bytes_ = 0;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;  // bytes
};

// The memory that a call borrows until its future is ready: views of the caller's arrays, and
// copies of those whose layout the client cannot read.
struct Borrowed {
  std::vector<ArrayView> views;
  std::vector<std::unique_ptr<std::vector<uint64_t>>> ids;
  std::vector<std::unique_ptr<std::vector<uint32_t>>> counts;
  std::vector<std::unique_ptr<std::vector<float>>> floats;
};

// Integers of any type, in row-major order. With a `table` that refuses ids outside its rows (null:
// any id), a negative id raises OutOfRange.
bool TakeIds(PyObject* array, const std::string& argument, const Table* table, Borrowed* borrowed,
             absl::Span<const uint64_t>* ids);
// Integers of 0 to 2^32 - 1.
bool TakeCounts(PyObject* array, const std::string& argument, Borrowed* borrowed,
                absl::Span<const uint32_t>* counts);
// Floats of any type; `elements` in all.
bool TakeFloats(PyObject* array, const std::string& argument, int64_t elements,
                const std::string& expected, Borrowed* borrowed, absl::Span<const float>* floats);
// Memory to write to: C-contiguous, of `elements` elements of `item_bytes` each; float32 or, by its
// size, the type that travels. Null and an exception otherwise.
void* TakeOutput(PyObject* array, const std::string& argument, int64_t elements, bool floats,
                 int64_t item_bytes, const std::string& expected, Borrowed* borrowed);

// --- memory of ours, as an object with the buffer protocol
bool AddBufferType(PyObject* module);
// `owner` keeps `data` alive. `format` as in struct: "f", "I".
PyObject* NewBuffer(PyObject* module, std::shared_ptr<void> owner, void* data, const char* format,
                    int64_t item_bytes, int64_t elements);

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_ARRAYS_H_
