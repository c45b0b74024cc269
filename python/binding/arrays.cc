#include "python/binding/arrays.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "python/binding/errors.h"
#include "row_math/half.h"

namespace hotbed::python {
namespace {

// --- DLPack, version 0 (https://dmlc.github.io/dlpack): the layout is its contract.
struct DlDevice {
  int32_t type;
  int32_t id;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // elements; null: row-major
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};
constexpr int kDlCpu = 1;
constexpr int kDlCudaHost = 3;  // pinned
constexpr int kDlInt = 0;
constexpr int kDlUint = 1;
constexpr int kDlFloat = 2;
constexpr int kDlBfloat = 4;

const char* KindWord(ArrayView::Kind kind) {
  switch (kind) {
    case ArrayView::Kind::kSigned:
      return "int";
    case ArrayView::Kind::kUnsigned:
      return "uint";
    case ArrayView::Kind::kFloat:
      return "float";
    case ArrayView::Kind::kBfloat:
      return "bfloat";
    case ArrayView::Kind::kOther:
      break;
  }
  return "elements of another type, bits: ";
}

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t LoadInteger(const char* at, bool is_signed, int64_t bytes) {
  switch (bytes) {
    case 1:
      return is_signed ? static_cast<int64_t>(Load<int8_t>(at)) : Load<uint8_t>(at);
    case 2:
      return is_signed ? static_cast<int64_t>(Load<int16_t>(at)) : Load<uint16_t>(at);
    case 4:
      return is_signed ? static_cast<int64_t>(Load<int32_t>(at)) : Load<uint32_t>(at);
    default:
      return Load<uint64_t>(at);
  }
}

float LoadFloat(const char* at, ArrayView::Kind kind, int64_t bytes) {
  if (kind == ArrayView::Kind::kBfloat) return Bf16ToFloat(Load<uint16_t>(at));
  if (bytes == 2) return Fp16ToFloat(Load<uint16_t>(at));
  return bytes == 8 ? static_cast<float>(Load<double>(at)) : Load<float>(at);
}

bool TakeIntegers(PyObject* array, const std::string& argument, ArrayView* view) {
  if (!view->Take(array, argument, /*writable=*/false)) return false;
  const bool integers =
      view->kind() == ArrayView::Kind::kSigned || view->kind() == ArrayView::Kind::kUnsigned;
  return integers || RaiseArray(argument, view->Text(), "an array of integers");
}

bool RefuseNegative(const std::string& argument, const Table& table, int64_t id, size_t position) {
  Raise(absl::OutOfRangeError(absl::StrCat(argument, ": id ", id, " at position ", position,
                                           " is outside the rows of table ", table.name(),
                                           "; allowed: 0..", table.options().rows - 1)));
  return false;
}

}  // namespace

ArrayView::~ArrayView() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  auto* const managed = static_cast<DlManagedTensor*>(managed_);
  if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
}

void ArrayView::Swap(ArrayView* other) {
  std::swap(buffer_, other->buffer_);
  std::swap(managed_, other->managed_);
  std::swap(data_, other->data_);
  std::swap(kind_, other->kind_);
  std::swap(item_bytes_, other->item_bytes_);
  shape_.swap(other->shape_);
  strides_.swap(other->strides_);
}

bool ArrayView::Take(PyObject* array, const std::string& argument, bool writable) {
  if (PyObject_CheckBuffer(array)) return TakeBuffer(array, argument, writable);
  if (PyObject_HasAttrString(array, "__dlpack__")) return TakeDlpack(array, argument);
  const Owned type(PyObject_Str(reinterpret_cast<PyObject*>(Py_TYPE(array))));
  const char* const name = type ? PyUnicode_AsUTF8AndSize(type.get(), nullptr) : nullptr;
  return RaiseArray(argument, name == nullptr ? "something else" : name,
                    "an array (numpy, torch, jax, or another with the buffer protocol or DLPack)");
}

bool ArrayView::TakeBuffer(PyObject* array, const std::string& argument, bool writable) {
  if (PyObject_GetBuffer(array, &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) return false;
  if (writable && buffer_.readonly != 0) {
    return RaiseArray(argument, "read-only", "an array that can be written");
  }
  data_ = static_cast<char*>(buffer_.buf);
  item_bytes_ = buffer_.itemsize;
  if (buffer_.ndim > 0) {
    shape_.assign(buffer_.shape, buffer_.shape + buffer_.ndim);
    strides_.assign(buffer_.strides, buffer_.strides + buffer_.ndim);
  }
  const char* format = buffer_.format == nullptr ? "B" : buffer_.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const char letter = format[0] != '\0' && format[1] == '\0' ? format[0] : '?';
  if (std::strchr("bhilqn", letter) != nullptr) kind_ = Kind::kSigned;
  if (std::strchr("BHILQN", letter) != nullptr) kind_ = Kind::kUnsigned;
  if (std::strchr("efd", letter) != nullptr) kind_ = Kind::kFloat;
  return true;
}

bool ArrayView::TakeDlpack(PyObject* array, const std::string& argument) {
  const Owned method(PyObject_GetAttrString(array, "__dlpack__"));
  const Owned capsule(method ? PyObject_CallObject(method.get(), nullptr) : nullptr);
  if (!capsule) return false;
  managed_ = PyCapsule_GetPointer(capsule.get(), "dltensor");
  if (managed_ == nullptr || PyCapsule_SetName(capsule.get(), "used_dltensor") != 0) return false;
  const DlTensor& tensor = static_cast<DlManagedTensor*>(managed_)->tensor;
  if (tensor.device.type != kDlCpu && tensor.device.type != kDlCudaHost) {
    return RaiseArray(argument,
                      absl::StrCat("on a device (DLPack type ", tensor.device.type, ", number ",
                                   tensor.device.id, ")"),
                      "host memory");
  }
  data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
  item_bytes_ = tensor.bits / 8 * tensor.lanes;
  shape_.assign(tensor.shape, tensor.shape + tensor.dimensions);
  strides_.resize(shape_.size());
  int64_t stride = 1;
  for (int d = tensor.dimensions - 1; d >= 0; --d) {
    strides_[d] = (tensor.strides == nullptr ? stride : tensor.strides[d]) * item_bytes_;
    stride *= shape_[d];
  }
  kind_ = tensor.lanes != 1          ? Kind::kOther
          : tensor.code == kDlInt    ? Kind::kSigned
          : tensor.code == kDlUint   ? Kind::kUnsigned
          : tensor.code == kDlFloat  ? Kind::kFloat
          : tensor.code == kDlBfloat ? Kind::kBfloat
                                     : Kind::kOther;
  return true;
}

int64_t ArrayView::elements() const {
  int64_t count = 1;
  for (const int64_t length : shape_) count *= length;
  return count;
}

bool ArrayView::contiguous() const {
  int64_t stride = item_bytes_;
  for (int d = static_cast<int>(shape_.size()) - 1; d >= 0; --d) {
    if (shape_[d] > 1 && strides_[d] != stride) return false;
    stride *= shape_[d];
  }
  return true;
}

std::string ArrayView::Text() const {
  return absl::StrCat(KindWord(kind_), 8 * item_bytes_, " of shape (", absl::StrJoin(shape_, ", "),
                      ")");
}

template <typename Visit>
void ArrayView::ForEach(Visit visit) const {
  const int64_t count = elements();
  std::vector<int64_t> index(shape_.size(), 0);
  const char* at = data_;
  for (int64_t i = 0; i < count; ++i) {
    visit(at);
    for (int d = static_cast<int>(shape_.size()) - 1; d >= 0; --d) {
      at += strides_[d];
      if (++index[d] < shape_[d]) break;
      at -= strides_[d] * shape_[d];
      index[d] = 0;
    }
  }
}

bool TakeIds(PyObject* array, const std::string& argument, const Table* table, Borrowed* borrowed,
             absl::Span<const uint64_t>* ids) {
  ArrayView view;
  if (!TakeIntegers(array, argument, &view)) return false;
  const bool is_signed = view.kind() == ArrayView::Kind::kSigned;
  const size_t count = static_cast<size_t>(view.elements());
  if (view.item_bytes() == 8 && view.contiguous()) {
    *ids = {reinterpret_cast<const uint64_t*>(view.data()), count};
  } else {
    auto copy = std::make_unique<std::vector<uint64_t>>();
    copy->reserve(count);
    view.ForEach(
        [&](const char* at) { copy->push_back(LoadInteger(at, is_signed, view.item_bytes())); });
    *ids = *copy;
    borrowed->ids.push_back(std::move(copy));
  }
  borrowed->views.push_back(std::move(view));
  if (!is_signed || table == nullptr || table->options().hashed ||
      table->options().bounds_mode != BoundsMode::kError) {
    return true;
  }
  uint64_t all = 0;
  for (const uint64_t id : *ids) all |= id;
  if (static_cast<int64_t>(all) >= 0) return true;
  const auto negative = std::find_if(ids->begin(), ids->end(),
                                     [](uint64_t id) { return static_cast<int64_t>(id) < 0; });
  return RefuseNegative(argument, *table, static_cast<int64_t>(*negative),
                        static_cast<size_t>(negative - ids->begin()));
}

bool TakeCounts(PyObject* array, const std::string& argument, Borrowed* borrowed,
                absl::Span<const uint32_t>* counts) {
  ArrayView view;
  if (!TakeIntegers(array, argument, &view)) return false;
  const bool is_signed = view.kind() == ArrayView::Kind::kSigned;
  auto copy = std::make_unique<std::vector<uint32_t>>();
  copy->reserve(static_cast<size_t>(view.elements()));
  uint64_t largest = 0;
  view.ForEach([&](const char* at) {
    const uint64_t value = LoadInteger(at, is_signed, view.item_bytes());
    largest = std::max(largest, value);
    copy->push_back(static_cast<uint32_t>(value));
  });
  if (largest > std::numeric_limits<uint32_t>::max()) {
    return RaiseArray(argument, absl::StrCat("with an element of ", static_cast<int64_t>(largest)),
                      "0 to 2^32 - 1");
  }
  *counts = *copy;
  borrowed->counts.push_back(std::move(copy));
  return true;
}

bool TakeFloats(PyObject* array, const std::string& argument, int64_t elements,
                const std::string& expected, Borrowed* borrowed, absl::Span<const float>* floats) {
  ArrayView view;
  if (!view.Take(array, argument, /*writable=*/false)) return false;
  const bool is_float =
      view.kind() == ArrayView::Kind::kFloat || view.kind() == ArrayView::Kind::kBfloat;
  if (!is_float || view.elements() != elements) return RaiseArray(argument, view.Text(), expected);
  if (view.kind() == ArrayView::Kind::kFloat && view.item_bytes() == 4 && view.contiguous()) {
    *floats = {reinterpret_cast<const float*>(view.data()), static_cast<size_t>(elements)};
    borrowed->views.push_back(std::move(view));
    return true;
  }
  auto copy = std::make_unique<std::vector<float>>();
  copy->reserve(static_cast<size_t>(elements));
  view.ForEach(
      [&](const char* at) { copy->push_back(LoadFloat(at, view.kind(), view.item_bytes())); });
  *floats = *copy;
  borrowed->floats.push_back(std::move(copy));
  return true;
}

void* TakeOutput(PyObject* array, const std::string& argument, int64_t elements, bool floats,
                 int64_t item_bytes, const std::string& expected, Borrowed* borrowed) {
  ArrayView view;
  if (!view.Take(array, argument, /*writable=*/true)) return nullptr;
  const bool is_float =
      view.kind() == ArrayView::Kind::kFloat || view.kind() == ArrayView::Kind::kBfloat;
  if (is_float != floats || view.item_bytes() != item_bytes || view.elements() != elements ||
      !view.contiguous()) {
    RaiseArray(argument, absl::StrCat(view.contiguous() ? "" : "not contiguous, ", view.Text()),
               expected);
    return nullptr;
  }
  void* const data = view.data();
  borrowed->views.push_back(std::move(view));
  static char nothing[8];
  return data != nullptr ? data : nothing;  // an empty array
}

// --- Buffer

namespace {

struct Memory {
  std::shared_ptr<void> owner;
  void* data;
  const char* format;
  Py_ssize_t item_bytes;
  Py_ssize_t elements;
};
struct BufferObject {
  PyObject_HEAD Memory* memory;
};

int GetBuffer(PyObject* self, Py_buffer* view, int flags) {
  const Memory& memory = *reinterpret_cast<BufferObject*>(self)->memory;
  if (PyBuffer_FillInfo(view, self, memory.data, memory.elements * memory.item_bytes,
                        /*readonly=*/0, flags) != 0) {
    return -1;
  }
  view->itemsize = memory.item_bytes;
  if ((flags & PyBUF_FORMAT) != 0) view->format = const_cast<char*>(memory.format);
  auto& kept = reinterpret_cast<BufferObject*>(self)->memory;
  if (view->shape != nullptr) view->shape = &kept->elements;
  if (view->strides != nullptr) view->strides = &kept->item_bytes;
  return 0;
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<BufferObject*>(self)->memory;
  PyObject_Free(self);
  Py_DECREF(type);
}

PyType_Slot buffer_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(&GetBuffer)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&Dealloc)},
    {Py_tp_doc, const_cast<char*>("Memory of Hotbed's, by the buffer protocol.")},
    {0, nullptr},
};
PyType_Spec buffer_spec = {"hotbed._hotbed.Buffer", sizeof(BufferObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, buffer_slots};

}  // namespace

bool AddBufferType(PyObject* module) {
  const Owned type(PyType_FromSpec(&buffer_spec));
  return type && PyModule_AddObjectRef(module, "Buffer", type.get()) == 0;
}

PyObject* NewBuffer(PyObject* module, std::shared_ptr<void> owner, void* data, const char* format,
                    int64_t item_bytes, int64_t elements) {
  const Owned type(PyObject_GetAttrString(module, "Buffer"));
  if (!type) return nullptr;
  PyObject* const self = PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type.get()), 0);
  if (self == nullptr) return nullptr;
  static char nothing[8];
  reinterpret_cast<BufferObject*>(self)->memory =
      new Memory{std::move(owner), data != nullptr ? data : nothing, format, item_bytes, elements};
  return self;
}

}  // namespace hotbed::python
