#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hotbed/trace.h"
#include "python/binding/arguments.h"
#include "python/binding/calls.h"
#include "python/binding/errors.h"
#include "python/binding/handles.h"

namespace hotbed::python {
namespace {

// look_ahead(client, batches_max, bytes_max, own_pushes_behind)
PyObject* MakeLookAhead(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  unsigned int batches = 0;
  unsigned long long bytes = 0;
  unsigned int behind = 0;
  if (PyArg_ParseTuple(arguments, "OIKI", &capsule, &batches, &bytes, &behind) == 0) return nullptr;
  auto handle = std::make_shared<LookAheadHandle>();
  handle->connection = ConnectionOf(capsule);
  if (handle->connection == nullptr) return nullptr;
  handle->client = handle->connection->client;
  auto ahead =
      LookAhead::Create(handle->client.get(),
                        {.batches_max = batches, .bytes_max = bytes, .own_pushes_behind = behind});
  if (!ahead.ok()) return Raise(ahead.status());
  handle->ahead = *std::move(ahead);
  return NewLookAhead(std::move(handle));
}

// look_ahead_stats(look_ahead): (batches, rows, rows_ready, rows_refreshed, rows_late)
PyObject* LookAheadStatsCall(PyObject*, PyObject* capsule) {
  const std::shared_ptr<LookAheadHandle> handle = LookAheadOf(capsule);
  if (handle == nullptr) return nullptr;
  const LookAheadStats s = handle->ahead->Stats();
  return Py_BuildValue("(KKKKK)", s.batches, s.rows, s.rows_ready, s.rows_refreshed, s.rows_late);
}

// embeddings(client, ((feature, table, pooling, output, scale_by_frequency), ...), pooling_at,
//            look_ahead or None)
PyObject* MakeEmbeddings(PyObject*, PyObject* arguments) {
  PyObject *capsule, *tuple, *ahead;
  int pooling_at = 0;
  if (PyArg_ParseTuple(arguments, "OOiO", &capsule, &tuple, &pooling_at, &ahead) == 0) {
    return nullptr;
  }
  auto handle = std::make_shared<EmbeddingsHandle>();
  handle->connection = ConnectionOf(capsule);
  if (handle->connection == nullptr) return nullptr;
  handle->client = handle->connection->client;
  EmbeddingOptions options;
  options.pooling_at = static_cast<PoolingPlace>(pooling_at);
  if (ahead != Py_None) {
    handle->ahead = LookAheadOf(ahead);
    if (handle->ahead == nullptr) return nullptr;
    options.look_ahead = handle->ahead->ahead.get();
  }
  std::vector<EmbeddingFeature> features;
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i) {
    const char *name, *output;
    PyObject* table = nullptr;
    int pooling = 0;
    int by_frequency = 0;
    if (PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "sOisp", &name, &table, &pooling, &output,
                         &by_frequency) == 0) {
      return nullptr;
    }
    const TableHandle* const found = TableOf(table);
    if (found == nullptr) return nullptr;
    features.push_back({.feature = name,
                        .table = found->table,
                        .pooling = static_cast<Pooling>(pooling),
                        .output = output,
                        .scale_by_frequency = by_frequency != 0});
  }
  auto embeddings = Embeddings::Create(handle->client.get(), std::move(features), options);
  if (!embeddings.ok()) return Raise(embeddings.status());
  handle->embeddings = *std::move(embeddings);
  return NewEmbeddings(std::move(handle));
}

// (keys, lengths, ids, weights or None): key-major, as TorchRec's KeyedJaggedTensor.
bool ReadBatch(PyObject* tuple, JaggedBatch* batch) {
  PyObject *keys, *lengths, *ids, *weights;
  if (PyArg_ParseTuple(tuple, "OOOO", &keys, &lengths, &ids, &weights) == 0) return false;
  std::vector<std::string> names(static_cast<size_t>(PyTuple_Size(keys)));
  for (size_t i = 0; i < names.size(); ++i) {
    if (!ReadText(PyTuple_GetItem(keys, static_cast<Py_ssize_t>(i)), &names[i])) return false;
  }
  Borrowed borrowed;
  absl::Span<const uint32_t> counts;
  absl::Span<const uint64_t> id_span;
  absl::Span<const float> weight_span;
  if (!TakeCounts(lengths, "lengths", &borrowed, &counts) ||
      !TakeIds(ids, "values", nullptr, &borrowed, &id_span)) {
    return false;
  }
  if (weights != Py_None &&
      !TakeFloats(weights, "weights", static_cast<int64_t>(id_span.size()),
                  absl::StrCat("floats, one for each of ", id_span.size(), " values"), &borrowed,
                  &weight_span)) {
    return false;
  }
  auto made = JaggedBatch::FromLengths(std::move(names), {counts.begin(), counts.end()},
                                       {id_span.begin(), id_span.end()},
                                       {weight_span.begin(), weight_span.end()});
  if (!made.ok()) {
    Raise(made.status());
    return false;
  }
  *batch = *std::move(made);
  return true;
}

// announce(embeddings, batch, traceparent or None)
PyObject* Announce(PyObject*, PyObject* arguments) {
  PyObject *capsule, *tuple;
  const char* traceparent = nullptr;
  JaggedBatch batch;
  if (PyArg_ParseTuple(arguments, "OOz", &capsule, &tuple, &traceparent) == 0) return nullptr;
  const std::shared_ptr<EmbeddingsHandle> handle = EmbeddingsOf(capsule);
  if (handle == nullptr || !ReadBatch(tuple, &batch)) return nullptr;
  absl::Status announced;
  {
    const WithoutGil without;
    const TraceScope trace(traceparent == nullptr ? "" : traceparent);
    announced = handle->embeddings->Announce(batch);
  }
  return announced.ok() ? Owned::New(Py_None).Release() : Raise(announced);
}

// forward(embeddings, batch, traceparent or None): a call whose outputs `outputs` gives.
PyObject* Forward(PyObject*, PyObject* arguments) {
  PyObject *capsule, *tuple;
  const char* traceparent = nullptr;
  if (PyArg_ParseTuple(arguments, "OOz", &capsule, &tuple, &traceparent) == 0) return nullptr;
  auto step = std::make_shared<ForwardStep>();
  step->embeddings = EmbeddingsOf(capsule);
  if (step->embeddings == nullptr || !ReadBatch(tuple, &step->batch)) return nullptr;
  auto pending = std::make_unique<Pending>();
  pending->connection = step->embeddings->connection;
  pending->forward = step;
  {
    const WithoutGil without;
    const TraceScope trace(traceparent == nullptr ? "" : traceparent);
    pending->future = step->embeddings->embeddings->Forward(step->batch, &step->output);
  }
  return NewPending(std::move(pending));
}

ForwardStep* StepOf(Pending* pending) {
  if (pending == nullptr) return nullptr;
  if (pending->forward != nullptr && pending->ready()) return pending->forward.get();
  PyErr_SetString(PyExc_RuntimeError, "not a forward call that is done");
  return nullptr;
}

// outputs(forward call): (values, batch size, columns,
//   ((name, dim, pooling, column, sequence or None, lengths or None), ...), ids out of bounds)
PyObject* Outputs(PyObject* module, PyObject* capsule) {
  Pending* const pending = PendingOf(capsule);
  ForwardStep* const step = StepOf(pending);
  if (step == nullptr) return nullptr;
  const std::shared_ptr<void> owner = pending->forward;
  EmbeddingOutput& output = step->output;
  Owned features(PyTuple_New(static_cast<Py_ssize_t>(output.features.size())));
  for (size_t i = 0; i < output.features.size(); ++i) {
    EmbeddingOutput::Feature& feature = output.features[i];
    Owned sequence = Owned::New(Py_None);
    Owned lengths = Owned::New(Py_None);
    if (feature.pooling == Pooling::kNone) {
      sequence = Owned(NewBuffer(module, owner, feature.sequence.data(), "f", sizeof(float),
                                 static_cast<int64_t>(feature.sequence.size())));
      lengths = Owned(NewBuffer(module, owner, feature.lengths.data(), "I", sizeof(uint32_t),
                                static_cast<int64_t>(feature.lengths.size())));
      if (!sequence || !lengths) return nullptr;
    }
    PyObject* const entry = Py_BuildValue("(sIiIOO)", feature.name.c_str(), feature.dim,
                                          static_cast<int>(feature.pooling), feature.column,
                                          sequence.get(), lengths.get());
    if (entry == nullptr ||
        PyTuple_SetItem(features.get(), static_cast<Py_ssize_t>(i), entry) != 0) {
      return nullptr;
    }
  }
  const Owned values(NewBuffer(module, owner, output.values.data(), "f", sizeof(float),
                               static_cast<int64_t>(output.values.size())));
  if (!values) return nullptr;
  return Py_BuildValue("(OIIOK)", values.get(), output.batch_size, output.columns, features.get(),
                       static_cast<unsigned long long>(output.out_of_bounds));
}

// The gradients of a forward's outputs: of the pooled values, and of each sequence. None: none.
bool ReadGradients(PyObject* values, PyObject* sequences, const ForwardStep& step,
                   Borrowed* borrowed, OutputGradients* gradients) {
  const int64_t elements = static_cast<int64_t>(step.output.values.size());
  if (values != Py_None &&
      !TakeFloats(values, "gradient", elements, absl::StrCat(elements, " floats, as the output"),
                  borrowed, &gradients->values)) {
    return false;
  }
  gradients->sequences.resize(step.output.features.size());
  for (Py_ssize_t i = 0; i < PyTuple_Size(sequences); ++i) {
    PyObject* const sequence = PyTuple_GetItem(sequences, i);
    const auto& feature = step.output.features[static_cast<size_t>(i)];
    const int64_t size = static_cast<int64_t>(feature.sequence.size());
    if (sequence != Py_None &&
        !TakeFloats(sequence, absl::StrCat("gradient of ", feature.name), size,
                    absl::StrCat(size, " floats, as the output"), borrowed,
                    &gradients->sequences[static_cast<size_t>(i)])) {
      return false;
    }
  }
  return true;
}

// backward(forward call, step, gradient of values or None, sequence gradients, push_options)
PyObject* Backward(PyObject*, PyObject* arguments) {
  PyObject *capsule, *step_object, *values, *sequences, *options_tuple;
  if (PyArg_ParseTuple(arguments, "OOOOO", &capsule, &step_object, &values, &sequences,
                       &options_tuple) == 0) {
    return nullptr;
  }
  Pending* const forward = PendingOf(capsule);
  ForwardStep* const kept = StepOf(forward);
  uint64_t number = 0;
  PushOptions options;
  std::string traceparent;
  OutputGradients gradients;
  auto pending = std::make_unique<Pending>();
  if (kept == nullptr || !ReadUnsigned(step_object, "step", &number) ||
      !ReadPushOptions(options_tuple, &options, &traceparent) ||
      !ReadGradients(values, sequences, *kept, &pending->borrowed, &gradients)) {
    return nullptr;
  }
  pending->connection = forward->connection;
  pending->forward = forward->forward;
  {
    const WithoutGil without;
    const TraceScope trace(traceparent);
    pending->future = kept->embeddings->embeddings->Backward(number, kept->batch, kept->output,
                                                             gradients, options);
  }
  return NewPending(std::move(pending));
}

constexpr char kSum[] = "hotbed.gradients";
using Gradients = std::shared_ptr<std::vector<SparseGradient>>;

// sum_gradients(((forward call, gradient of values or None, sequence gradients), ...)): of all of
// them together, each id once.
PyObject* SumGradients(PyObject*, PyObject* parts) {
  GradientAccumulator sum;
  for (Py_ssize_t i = 0; i < PyTuple_Size(parts); ++i) {
    PyObject *capsule, *values, *sequences;
    if (PyArg_ParseTuple(PyTuple_GetItem(parts, i), "OOO", &capsule, &values, &sequences) == 0) {
      return nullptr;
    }
    ForwardStep* const step = StepOf(PendingOf(capsule));
    Borrowed borrowed;
    OutputGradients gradients;
    if (step == nullptr || !ReadGradients(values, sequences, *step, &borrowed, &gradients)) {
      return nullptr;
    }
    absl::Status added;
    {
      const WithoutGil without;
      const auto sparse =
          step->embeddings->embeddings->Gradients(step->batch, step->output, gradients);
      added = sparse.ok() ? sum.Add(*sparse) : sparse.status();
    }
    if (!added.ok()) return Raise(added);
  }
  auto made =
      std::make_unique<Gradients>(std::make_shared<std::vector<SparseGradient>>(sum.Take()));
  PyObject* const capsule = PyCapsule_New(made.get(), kSum, [](PyObject* destroyed) {
    delete static_cast<Gradients*>(PyCapsule_GetPointer(destroyed, kSum));
  });
  if (capsule != nullptr) static_cast<void>(made.release());
  return capsule;
}

// push_gradients(forward call, gradients of sum_gradients, step, push_options)
PyObject* PushSum(PyObject*, PyObject* arguments) {
  PyObject *capsule, *sum, *step_object, *options_tuple;
  if (PyArg_ParseTuple(arguments, "OOOO", &capsule, &sum, &step_object, &options_tuple) == 0) {
    return nullptr;
  }
  Pending* const forward = PendingOf(capsule);
  ForwardStep* const step = StepOf(forward);
  auto* const gradients = static_cast<Gradients*>(PyCapsule_GetPointer(sum, kSum));
  uint64_t number = 0;
  PushOptions options;
  std::string traceparent;
  if (step == nullptr || gradients == nullptr || !ReadUnsigned(step_object, "step", &number) ||
      !ReadPushOptions(options_tuple, &options, &traceparent)) {
    return nullptr;
  }
  auto pending = std::make_unique<Pending>();
  pending->connection = forward->connection;
  pending->kept = *gradients;
  {
    const WithoutGil without;
    const TraceScope trace(traceparent);
    pending->future = PushGradients(step->embeddings->client.get(), number, **gradients, options);
  }
  return NewPending(std::move(pending));
}

}  // namespace

PyMethodDef embedding_methods[] = {
    {"look_ahead", &MakeLookAhead, METH_VARARGS, nullptr},
    {"look_ahead_stats", &LookAheadStatsCall, METH_O, nullptr},
    {"embeddings", &MakeEmbeddings, METH_VARARGS, nullptr},
    {"announce", &Announce, METH_VARARGS, nullptr},
    {"forward", &Forward, METH_VARARGS, nullptr},
    {"outputs", &Outputs, METH_O, nullptr},
    {"backward", &Backward, METH_VARARGS, nullptr},
    {"sum_gradients", &SumGradients, METH_O, nullptr},
    {"push_gradients", &PushSum, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hotbed::python
