// Tables as output layers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "hotbed/output_layer.h"
#include "hotbed/sampled_softmax.h"
#include "python/binding/arguments.h"
#include "python/binding/arrays.h"
#include "python/binding/calls.h"
#include "python/binding/errors.h"
#include "python/binding/handles.h"

namespace hotbed::python {
namespace {

constexpr char kLayer[] = "hotbed.output_layer";
constexpr char kPass[] = "hotbed.output_pass";

struct LayerHandle {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Client> client;  // outlives it
  const Table* table = nullptr;
  std::unique_ptr<OutputLayer> layer;
};

struct PassHandle {
  std::shared_ptr<LayerHandle> layer;  // outlives it
  std::unique_ptr<OutputPass> pass;
};

template <typename T>
T* CapsuleOf(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) != 0) {
    return static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  }
  PyErr_Format(PyExc_TypeError, "expected a %s of this package", name);
  return nullptr;
}

// A capsule inherited by fork is left alone: the client's threads are in the parent.
bool IsOfThisProcess(const LayerHandle& layer) {
  return layer.connection->generation == ForkGeneration();
}
bool IsUsable(const LayerHandle& layer) {
  if (!IsOfThisProcess(layer)) {
    RaiseNamed("ForkedError", "this output layer was made before the process was forked");
    return false;
  }
  if (layer.connection->client == nullptr) RaiseNamed("ClosedError", "this client is closed");
  return layer.connection->client != nullptr;
}

PyObject* NewLayer(const TableHandle& table, std::unique_ptr<OutputLayer> layer) {
  auto handle = std::make_unique<std::shared_ptr<LayerHandle>>(std::make_shared<LayerHandle>());
  (*handle)->connection = table.connection;
  (*handle)->client = table.connection->client;
  (*handle)->table = table.table;
  (*handle)->layer = std::move(layer);
  PyObject* const capsule = PyCapsule_New(handle.get(), kLayer, [](PyObject* owner) {
    auto* const held =
        static_cast<std::shared_ptr<LayerHandle>*>(PyCapsule_GetPointer(owner, kLayer));
    if (!IsOfThisProcess(**held)) return;
    const WithoutGil without;
    delete held;
  });
  if (capsule != nullptr) static_cast<void>(handle.release());
  return capsule;
}

// output_layer(table, bias, label_smoothing, z_loss, shifted mean, ignored target, deadline)
PyObject* MakeOutputLayer(PyObject*, PyObject* arguments) {
  PyObject *capsule, *deadline;
  int bias = 0;
  int shifted = 0;
  long long ignored = 0;
  OutputLayerOptions options;
  if (PyArg_ParseTuple(arguments, "OpffpLO", &capsule, &bias, &options.label_smoothing,
                       &options.z_loss, &shifted, &ignored, &deadline) == 0 ||
      !ReadSeconds(deadline, "deadline", &options.deadline)) {
    return nullptr;
  }
  const TableHandle* const table = TableOf(capsule);
  if (table == nullptr) return nullptr;
  options.bias = bias != 0;
  options.z_loss_of = shifted != 0 ? ZLoss::kShiftedMean : ZLoss::kLogZ;
  options.ignored_target = ignored;
  auto layer = OutputLayer::Make(table->connection->client.get(), table->table, options);
  if (!layer.ok()) return Raise(layer.status());
  return NewLayer(*table, *std::move(layer));
}

// sampled_layer(table, samples, distinct, seed, counts or None, power, bias, ignored, deadline)
PyObject* MakeSampledLayer(PyObject*, PyObject* arguments) {
  PyObject *capsule, *counts, *deadline;
  unsigned long long samples = 0;
  int distinct = 0;
  unsigned long long seed = 0;
  double power = 1;
  int bias = 0;
  long long ignored = 0;
  SampledSoftmaxOptions options;
  if (PyArg_ParseTuple(arguments, "OKpKOdpLO", &capsule, &samples, &distinct, &seed, &counts,
                       &power, &bias, &ignored, &deadline) == 0 ||
      !ReadSeconds(deadline, "deadline", &options.deadline)) {
    return nullptr;
  }
  const TableHandle* const table = TableOf(capsule);
  if (table == nullptr) return nullptr;
  options.samples = samples;
  options.distinct = distinct != 0;
  options.seed = seed;
  options.bias = bias != 0;
  options.ignored_target = ignored;
  absl::StatusOr<ClassSampler> sampler = ClassSampler::LogUniform(table->table->options().rows);
  if (counts != Py_None) {
    Borrowed borrowed;
    ArrayView shape;
    absl::Span<const float> floats;
    if (!shape.Take(counts, "counts", /*writable=*/false) ||
        !TakeFloats(counts, "counts", shape.elements(), "floats", &borrowed, &floats)) {
      return nullptr;
    }
    sampler = ClassSampler::Frequency(std::vector<double>(floats.begin(), floats.end()), power);
  }
  if (!sampler.ok()) return Raise(sampler.status());
  auto layer =
      MakeSampledOutputLayer(table->connection->client.get(), table->table, *sampler, options);
  if (!layer.ok()) return Raise(layer.status());
  return NewLayer(*table, *std::move(layer));
}

// output_forward(layer, hidden, targets): a pass.
PyObject* OutputForward(PyObject*, PyObject* arguments) {
  PyObject *capsule, *hidden, *targets;
  if (PyArg_ParseTuple(arguments, "OOO", &capsule, &hidden, &targets) == 0) return nullptr;
  auto* const held = CapsuleOf<std::shared_ptr<LayerHandle>>(capsule, kLayer);
  if (held == nullptr || !IsUsable(**held)) return nullptr;
  Borrowed borrowed;
  ArrayView shape;
  absl::Span<const float> floats;
  absl::Span<const uint64_t> ids;
  if (!shape.Take(hidden, "hidden", /*writable=*/false) ||
      !TakeFloats(hidden, "hidden", shape.elements(), "floats", &borrowed, &floats) ||
      !TakeIds(targets, "targets", /*table=*/nullptr, &borrowed, &ids)) {
    return nullptr;
  }
  auto handle = std::make_unique<PassHandle>();
  handle->layer = *held;
  absl::StatusOr<std::unique_ptr<OutputPass>> pass = absl::UnknownError("not run");
  {
    const WithoutGil without;
    const absl::Span<const int64_t> signed_ids(reinterpret_cast<const int64_t*>(ids.data()),
                                               ids.size());
    pass = handle->layer->layer->Forward(floats, signed_ids);
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!pass.ok()) return Raise(pass.status());
  handle->pass = *std::move(pass);
  PyObject* const made = PyCapsule_New(handle.get(), kPass, [](PyObject* owner) {
    auto* const of_pass = static_cast<PassHandle*>(PyCapsule_GetPointer(owner, kPass));
    if (!IsOfThisProcess(*of_pass->layer)) return;
    const WithoutGil without;
    delete of_pass;
  });
  if (made != nullptr) static_cast<void>(handle.release());
  return made;
}

// output_logits(layer, hidden): bytes of float32, for each token one per row of the table.
PyObject* OutputLogits(PyObject*, PyObject* arguments) {
  PyObject *capsule, *hidden;
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &hidden) == 0) return nullptr;
  auto* const held = CapsuleOf<std::shared_ptr<LayerHandle>>(capsule, kLayer);
  if (held == nullptr || !IsUsable(**held)) return nullptr;
  Borrowed borrowed;
  ArrayView shape;
  absl::Span<const float> floats;
  if (!shape.Take(hidden, "hidden", /*writable=*/false) ||
      !TakeFloats(hidden, "hidden", shape.elements(), "floats", &borrowed, &floats)) {
    return nullptr;
  }
  absl::StatusOr<std::vector<float>> logits;
  {
    const std::shared_ptr<LayerHandle> layer = *held;
    const WithoutGil without;
    logits = layer->layer->Logits(floats);
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!logits.ok()) return Raise(logits.status());
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(logits->data()),
                                   static_cast<Py_ssize_t>(logits->size() * sizeof(float)));
}

// output_result(pass): (losses as bytes of float32, correct as bytes, tokens, bits per token, wire
// bytes)
PyObject* OutputResult(PyObject*, PyObject* capsule) {
  const PassHandle* const handle = CapsuleOf<PassHandle>(capsule, kPass);
  if (handle == nullptr) return nullptr;
  const OutputPass& pass = *handle->pass;
  return Py_BuildValue("(y#y#KdK)", reinterpret_cast<const char*>(pass.losses().data()),
                       static_cast<Py_ssize_t>(pass.losses().size() * sizeof(float)),
                       reinterpret_cast<const char*>(pass.correct().data()),
                       static_cast<Py_ssize_t>(pass.correct().size()),
                       static_cast<unsigned long long>(pass.tokens()), pass.bits_per_token(),
                       static_cast<unsigned long long>(pass.wire_bytes()));
}

// output_backward(pass, scales, hidden_gradient): fills in the gradient.
PyObject* OutputBackward(PyObject*, PyObject* arguments) {
  PyObject *capsule, *scales, *gradient;
  if (PyArg_ParseTuple(arguments, "OOO", &capsule, &scales, &gradient) == 0) return nullptr;
  const PassHandle* const handle = CapsuleOf<PassHandle>(capsule, kPass);
  if (handle == nullptr || !IsUsable(*handle->layer)) return nullptr;
  Borrowed borrowed;
  absl::Span<const float> floats;
  const int64_t tokens = static_cast<int64_t>(handle->pass->losses().size());
  if (!TakeFloats(scales, "scales", tokens, "one per token", &borrowed, &floats)) return nullptr;
  void* const to =
      TakeOutput(gradient, "hidden_gradient", tokens * handle->layer->layer->width(),
                 /*floats=*/true, sizeof(float), "float32 of the shape of hidden", &borrowed);
  if (to == nullptr) return nullptr;
  absl::Status done;
  {
    const WithoutGil without;
    done = handle->pass->Backward(floats, static_cast<float*>(to));
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!done.ok()) return Raise(done);
  Py_RETURN_NONE;
}

// output_push(pass, step, learning rate or None, gradient scale, ids or None, gradients or None)
PyObject* OutputPush(PyObject*, PyObject* arguments) {
  PyObject *capsule, *rate, *ids, *gradients;
  unsigned long long step = 0;
  OutputPushOptions options;
  if (PyArg_ParseTuple(arguments, "OKOfOO", &capsule, &step, &rate, &options.gradient_scale, &ids,
                       &gradients) == 0) {
    return nullptr;
  }
  const PassHandle* const handle = CapsuleOf<PassHandle>(capsule, kPass);
  if (handle == nullptr || !IsUsable(*handle->layer)) return nullptr;
  if (rate != Py_None) {
    double value = 0;
    if (!ReadNumber(rate, "lr", &value)) return nullptr;
    options.has_learning_rate = true;
    options.learning_rate = static_cast<float>(value);
  }
  Borrowed borrowed;
  if (ids != Py_None) {
    const Table* const table = handle->layer->table;
    absl::Span<const float> floats;
    if (!TakeIds(ids, "ids", table, &borrowed, &options.added_ids) ||
        !TakeFloats(gradients, "gradients",
                    static_cast<int64_t>(options.added_ids.size() * table->dim()), "one row per id",
                    &borrowed, &floats)) {
      return nullptr;
    }
    options.added_gradients = floats.data();
  }
  absl::Status pushed;
  {
    const WithoutGil without;
    pushed = handle->pass->Push(step, options);
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!pushed.ok()) return Raise(pushed);
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef output_methods[] = {
    {"output_layer", &MakeOutputLayer, METH_VARARGS, nullptr},
    {"sampled_layer", &MakeSampledLayer, METH_VARARGS, nullptr},
    {"output_forward", &OutputForward, METH_VARARGS, nullptr},
    {"output_logits", &OutputLogits, METH_VARARGS, nullptr},
    {"output_result", &OutputResult, METH_O, nullptr},
    {"output_backward", &OutputBackward, METH_VARARGS, nullptr},
    {"output_push", &OutputPush, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hotbed::python
