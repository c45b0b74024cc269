#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/tables/table_option.h"
#include "common/status_macros.h"
#include "common/traceparent.h"
#include "hotbed/composed.h"
#include "hotbed/local.h"
#include "hotbed/trace.h"
#include "python/binding/arguments.h"
#include "python/binding/calls.h"
#include "python/binding/errors.h"
#include "python/binding/handles.h"

namespace hotbed::python {
namespace {

// How often a wait looks for signals, so that Ctrl-C ends it.
constexpr absl::Duration kLookUp = absl::Milliseconds(50);

PyObject* None() { return Owned::New(Py_None).Release(); }

PyObject* Connected(absl::StatusOr<std::unique_ptr<Client>> client) {
  if (!client.ok()) return Raise(client.status());
  auto connection = std::make_shared<Connection>();
  connection->client = *std::move(client);
  return NewConnection(std::move(connection));
}

// connect(target, options)
PyObject* Connect(PyObject*, PyObject* arguments) {
  const char* target = nullptr;
  PyObject* dict = nullptr;
  ClientOptions options;
  if (PyArg_ParseTuple(arguments, "sO", &target, &dict) == 0 ||
      !ReadClientOptions(dict, &options)) {
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<Client>> client;
  {
    const WithoutGil without;
    client = Client::Connect(target, options);
  }
  return Connected(std::move(client));
}

// connect_local(directory, host_bytes, spill_bytes_max, log_sync_ms, checkpoint_ms, options)
PyObject* ConnectInProcess(PyObject*, PyObject* arguments) {
  const char* directory = nullptr;
  PyObject* bytes = nullptr;
  PyObject* spill = nullptr;
  PyObject* sync = nullptr;
  PyObject* checkpoint = nullptr;
  PyObject* dict = nullptr;
  LocalOptions local;
  ClientOptions options;
  if (PyArg_ParseTuple(arguments, "sOOOOO", &directory, &bytes, &spill, &sync, &checkpoint,
                       &dict) == 0 ||
      !ReadUnsigned(bytes, "memory", &local.host_bytes) ||
      !ReadUnsigned(spill, "spill_max", &local.spill_bytes_max) ||
      !ReadInteger(sync, "log_sync_interval_ms", &local.log_sync_interval_ms) ||
      !ReadInteger(checkpoint, "checkpoint_interval_ms", &local.checkpoint_interval_ms) ||
      !ReadClientOptions(dict, &options)) {
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<Client>> client;
  {
    const WithoutGil without;
    client = ConnectLocal(directory, local, options);
  }
  return Connected(std::move(client));
}

PyObject* CloseCall(PyObject*, PyObject* capsule) {
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  Close(connection.get());
  return None();
}

// --- tables

PyObject* TableResult(const std::shared_ptr<Connection>& connection,
                      const absl::StatusOr<const Table*>& table) {
  if (!table.ok()) return Raise(table.status());
  return NewTable({connection, *table});
}

// create_table(client, name, ((option, text), ...), if_not_exists, counts of ids or None, blocks)
PyObject* CreateTable(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* name = nullptr;
  PyObject* items = nullptr;
  PyObject* histogram = nullptr;
  int if_not_exists = 0;
  unsigned int blocks = 0;
  if (PyArg_ParseTuple(arguments, "OsOpOI", &capsule, &name, &items, &if_not_exists, &histogram,
                       &blocks) == 0) {
    return nullptr;
  }
  Borrowed borrowed;
  absl::Span<const uint64_t> counts;
  if (histogram != Py_None && !TakeIds(histogram, "histogram", nullptr, &borrowed, &counts)) {
    return nullptr;
  }
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  TableOptions spec;
  spec.name = name;
  bool failed = false;
  absl::Status read = ReadTable(items, &spec, &failed);
  if (failed) return nullptr;
  if (read.ok() && histogram == Py_None) read = ValidateTableSpec(spec);
  if (!read.ok()) return Raise(read);
  const std::shared_ptr<Client> client = connection->client;
  absl::StatusOr<const Table*> table;
  {
    const WithoutGil without;
    table = histogram == Py_None
                ? client->CreateTable(spec, if_not_exists != 0)
                : CreateTableByFrequency(client.get(), spec, counts, blocks, if_not_exists != 0);
  }
  return TableResult(connection, table);
}

// open_table(client, name)
PyObject* OpenTable(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* name = nullptr;
  if (PyArg_ParseTuple(arguments, "Os", &capsule, &name) == 0) return nullptr;
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  const std::shared_ptr<Client> client = connection->client;
  absl::StatusOr<const Table*> table;
  {
    const WithoutGil without;
    table = client->OpenTable(name);
  }
  return TableResult(connection, table);
}

// drop_table(client, name)
PyObject* DropTable(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* name = nullptr;
  if (PyArg_ParseTuple(arguments, "Os", &capsule, &name) == 0) return nullptr;
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  const std::shared_ptr<Client> client = connection->client;
  absl::Status dropped;
  {
    const WithoutGil without;
    dropped = client->DropTable(name);
  }
  return dropped.ok() ? None() : Raise(dropped);
}

// The options of a table as texts by field: {"dim": "64", "optimizer.kind": "adam", ...}.
PyObject* OptionsOf(const TableOptions& spec) {
  Owned dict(PyDict_New());
  const auto set = [&](const char* name, const std::string& text) {
    const Owned value(
        PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
    return value && PyDict_SetItemString(dict.get(), name, value.get()) == 0;
  };
  if (!dict || !set("name", spec.name)) return nullptr;
  TableOptions shown = spec;
  if (!spec.composition.table.empty()) {  // a part is a plain table by itself
    shown.composition = {};
    if (!set("part-of", spec.composition.table)) return nullptr;
  }
  for (const TableOption& option : TableOptionList()) {
    if (!set(option.name, option.print(shown))) return nullptr;
  }
  return dict.Release();
}

PyObject* TableOptionsCall(PyObject*, PyObject* capsule) {
  const TableHandle* const table = TableOf(capsule);
  return table == nullptr ? nullptr : OptionsOf(table->table->options());
}

// The names of the parts of a composed table; of a plain one, none.
PyObject* TableParts(PyObject*, PyObject* capsule) {
  const TableHandle* const table = TableOf(capsule);
  if (table == nullptr) return nullptr;
  Owned list(PyList_New(0));
  const ComposedTable* const composed = ComposedTable::From(table->table);
  for (const Table* const part :
       composed != nullptr ? composed->parts() : absl::Span<const Table* const>()) {
    const Owned name(PyUnicode_FromStringAndSize(part->name().data(),
                                                 static_cast<Py_ssize_t>(part->name().size())));
    if (!list || !name || PyList_Append(list.get(), name.get()) != 0) return nullptr;
  }
  return list.Release();
}

PyObject* ListTables(PyObject*, PyObject* capsule) {
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  const std::shared_ptr<Client> client = connection->client;
  absl::StatusOr<std::vector<TableOptions>> tables;
  {
    const WithoutGil without;
    tables = client->ListTables();
  }
  if (!tables.ok()) return Raise(tables.status());
  Owned list(PyList_New(0));
  for (const TableOptions& spec : *tables) {
    const Owned options(OptionsOf(spec));
    if (!list || !options || PyList_Append(list.get(), options.get()) != 0) return nullptr;
  }
  return list.Release();
}

// --- pulls and pushes

struct PullCall {
  std::vector<PullFeature> features;
  PullOptions options;
};

std::string Argument(const char* name, Py_ssize_t feature, Py_ssize_t features) {
  return features == 1 ? name : absl::StrCat(name, " of feature ", feature);
}

// (table, ids, out, lengths or None, pooling, weights or None, exists or None)
bool ReadPullFeature(PyObject* tuple, Py_ssize_t index, Py_ssize_t count, Borrowed* borrowed,
                     PullFeature* feature) {
  PyObject *table, *ids, *out, *lengths, *weights, *exists;
  int pooling = 0;
  if (PyArg_ParseTuple(tuple, "OOOOiOO", &table, &ids, &out, &lengths, &pooling, &weights,
                       &exists) == 0) {
    return false;
  }
  const TableHandle* const handle = TableOf(table);
  if (handle == nullptr) return false;
  feature->table = handle->table;
  if (!TakeIds(ids, Argument("ids", index, count), handle->table, borrowed, &feature->ids)) {
    return false;
  }
  const int64_t id_count = static_cast<int64_t>(feature->ids.size());
  int64_t rows = id_count;
  if (lengths != Py_None) {
    if (!TakeCounts(lengths, Argument("lengths", index, count), borrowed, &feature->bag_lengths)) {
      return false;
    }
    rows = static_cast<int64_t>(feature->bag_lengths.size());
    feature->pooling = static_cast<BagPooling>(pooling);
  }
  if (weights != Py_None) {
    absl::Span<const float> span;
    if (!TakeFloats(weights, Argument("weights", index, count), id_count,
                    absl::StrCat("floats, one for each of ", id_count, " ids"), borrowed, &span)) {
      return false;
    }
    feature->id_weights = span.data();
  }
  if (exists != Py_None) {
    feature->exists = static_cast<uint8_t*>(
        TakeOutput(exists, Argument("exists", index, count), id_count, /*floats=*/false, 1,
                   absl::StrCat("uint8, one for each of ", id_count, " ids"), borrowed));
    if (feature->exists == nullptr) return false;
  }
  const uint32_t dim = handle->table->dim();
  feature->rows =
      TakeOutput(out, Argument("out", index, count), rows * dim, /*floats=*/true, sizeof(float),
                 absl::StrCat("C-contiguous float32 of shape (", rows, ", ", dim, ") for table ",
                              handle->table->name()),
                 borrowed);
  return feature->rows != nullptr;
}

// pull(client, (feature, ...), deadline or None, lookup, traceparent or None)
PyObject* Pull(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  PyObject* tuple = nullptr;
  PyObject* deadline = nullptr;
  int lookup = 0;
  const char* traceparent = nullptr;
  if (PyArg_ParseTuple(arguments, "OOOpz", &capsule, &tuple, &deadline, &lookup, &traceparent) ==
      0) {
    return nullptr;
  }
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  auto pending = std::make_unique<Pending>();
  pending->connection = connection;
  PullCall call;
  call.features.resize(static_cast<size_t>(PyTuple_Size(tuple)));
  for (size_t i = 0; i < call.features.size(); ++i) {
    const Py_ssize_t at = static_cast<Py_ssize_t>(i);
    if (!ReadPullFeature(PyTuple_GetItem(tuple, at), at, PyTuple_Size(tuple), &pending->borrowed,
                         &call.features[i])) {
      return nullptr;
    }
  }
  if (!ReadSeconds(deadline, "deadline", &call.options.deadline)) return nullptr;
  const std::shared_ptr<Client> client = connection->client;
  {
    const WithoutGil without;
    const TraceScope trace(traceparent == nullptr ? "" : traceparent);
    pending->future = lookup != 0 ? client->Lookup(call.features, call.options)
                                  : client->Pull(call.features, call.options);
  }
  return NewPending(std::move(pending));
}

// One float per id, or None.
bool ReadPerId(PyObject* values, const char* name, const PushFeature& feature, Borrowed* borrowed,
               const float** floats) {
  if (values == Py_None) return true;
  absl::Span<const float> span;
  const auto ids = static_cast<int64_t>(feature.ids.size());
  if (!TakeFloats(values, name, ids, absl::StrCat(ids, " floats, one per id"), borrowed, &span)) {
    return false;
  }
  *floats = span.data();
  return true;
}

// (table, ids, gradients), and perhaps shows or None, clicks or None
bool ReadPushFeature(PyObject* tuple, Py_ssize_t index, Py_ssize_t count, Borrowed* borrowed,
                     PushFeature* feature) {
  PyObject *table, *ids, *gradients;
  PyObject* shows = Py_None;
  PyObject* clicks = Py_None;
  if (PyArg_ParseTuple(tuple, "OOO|OO", &table, &ids, &gradients, &shows, &clicks) == 0) {
    return false;
  }
  const TableHandle* const handle = TableOf(table);
  if (handle == nullptr) return false;
  feature->table = handle->table;
  if (!TakeIds(ids, Argument("ids", index, count), handle->table, borrowed, &feature->ids)) {
    return false;
  }
  const int64_t id_count = static_cast<int64_t>(feature->ids.size());
  const uint32_t dim = handle->table->dim();
  absl::Span<const float> span;
  if (!TakeFloats(gradients, Argument("gradients", index, count), id_count * dim,
                  absl::StrCat("floats of shape (", id_count, ", ", dim, ") for table ",
                               handle->table->name()),
                  borrowed, &span)) {
    return false;
  }
  feature->gradients = span.data();
  return ReadPerId(shows, "shows", *feature, borrowed, &feature->shows) &&
         ReadPerId(clicks, "clicks", *feature, borrowed, &feature->clicks);
}

// push(client, step, (feature, ...), push_options)
PyObject* Push(PyObject*, PyObject* arguments) {
  PyObject *capsule, *step_object, *tuple, *options_tuple;
  if (PyArg_ParseTuple(arguments, "OOOO", &capsule, &step_object, &tuple, &options_tuple) == 0) {
    return nullptr;
  }
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  uint64_t step = 0;
  PushOptions options;
  std::string traceparent;
  if (connection == nullptr || !ReadUnsigned(step_object, "step", &step) ||
      !ReadPushOptions(options_tuple, &options, &traceparent)) {
    return nullptr;
  }
  auto pending = std::make_unique<Pending>();
  pending->connection = connection;
  std::vector<PushFeature> features(static_cast<size_t>(PyTuple_Size(tuple)));
  for (size_t i = 0; i < features.size(); ++i) {
    const Py_ssize_t at = static_cast<Py_ssize_t>(i);
    if (!ReadPushFeature(PyTuple_GetItem(tuple, at), at, PyTuple_Size(tuple), &pending->borrowed,
                         &features[i])) {
      return nullptr;
    }
  }
  const std::shared_ptr<Client> client = connection->client;
  {
    const WithoutGil without;
    const TraceScope trace(traceparent);
    pending->future = client->Push(step, features, options);
  }
  return NewPending(std::move(pending));
}

// delete_rows(client, step, table, ids, deadline, traceparent or None)
PyObject* DeleteRows(PyObject*, PyObject* arguments) {
  PyObject *capsule, *step_object, *table, *ids, *deadline;
  const char* traceparent = nullptr;
  if (PyArg_ParseTuple(arguments, "OOOOOz", &capsule, &step_object, &table, &ids, &deadline,
                       &traceparent) == 0) {
    return nullptr;
  }
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  const TableHandle* const handle = connection == nullptr ? nullptr : TableOf(table);
  uint64_t step = 0;
  absl::Duration within = absl::ZeroDuration();
  if (handle == nullptr || !ReadUnsigned(step_object, "step", &step) ||
      !ReadSeconds(deadline, "deadline", &within)) {
    return nullptr;
  }
  auto pending = std::make_unique<Pending>();
  pending->connection = connection;
  absl::Span<const uint64_t> numbers;
  if (!TakeIds(ids, "ids", handle->table, &pending->borrowed, &numbers)) return nullptr;
  const std::shared_ptr<Client> client = connection->client;
  {
    const WithoutGil without;
    const TraceScope trace(traceparent == nullptr ? "" : traceparent);
    pending->future = client->Delete(step, handle->table, numbers, within);
  }
  return NewPending(std::move(pending));
}

// check_traceparent(text)
PyObject* CheckTrace(PyObject*, PyObject* text) {
  std::string traceparent;
  if (!ReadText(text, &traceparent)) return nullptr;
  const absl::Status checked = CheckTraceparent(traceparent);
  return checked.ok() ? None() : Raise(checked);
}

// --- pending calls

PyObject* IsDone(PyObject*, PyObject* capsule) {
  const Pending* const pending = PendingOf(capsule);
  return pending == nullptr ? nullptr : PyBool_FromLong(pending->ready() ? 1 : 0);
}

// wait(call, seconds or None): whether it is done. Signals are handled meanwhile.
PyObject* Wait(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  PyObject* seconds = nullptr;
  absl::Duration left = absl::InfiniteDuration();
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &seconds) == 0 ||
      !ReadSeconds(seconds, "timeout", &left)) {
    return nullptr;
  }
  const Pending* const pending = PendingOf(capsule);
  if (pending == nullptr) return nullptr;
  while (!pending->ready()) {
    const absl::Duration slice = std::min(left, kLookUp);
    {
      const WithoutGil without;
      if (pending->WaitFor(slice)) break;
    }
    if (PyErr_CheckSignals() != 0) return nullptr;
    left -= slice;
    if (left <= absl::ZeroDuration()) return PyBool_FromLong(0);
  }
  return PyBool_FromLong(1);
}

// when_done(call, function): calls it without arguments, from any thread. Once per call.
PyObject* WhenDone(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  PyObject* function = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &function) == 0) return nullptr;
  const Pending* const pending = PendingOf(capsule);
  if (pending == nullptr) return nullptr;
  Py_INCREF(function);
  const auto call = [function](const auto&) {
    const PyGILState_STATE state = PyGILState_Ensure();
    {
      const Owned owned(function);
      const Owned result(PyObject_CallObject(function, nullptr));
      if (!result) PyErr_WriteUnraisable(function);
    }
    PyGILState_Release(state);
  };
  {
    const WithoutGil without;
    std::visit([&](const auto& future) { future.Then(call); }, pending->future);
  }
  return None();
}

PyObject* StatusTuple(const absl::Status& status) {
  const std::string message(status.message());
  return Py_BuildValue("(is#)", static_cast<int>(status.code()), message.data(),
                       static_cast<Py_ssize_t>(message.size()));
}

PyObject* PushResultTuple(const PushResult& result) {
  Owned shards(PyList_New(0));
  for (const PushResult::Shard& shard : result.shards) {
    const Owned status(StatusTuple(shard.status));
    const Owned entry(Py_BuildValue("(sIO)", shard.table.c_str(), shard.index, status.get()));
    if (!shards || !entry || PyList_Append(shards.get(), entry.get()) != 0) return nullptr;
  }
  const Owned status(StatusTuple(result.status));
  return Py_BuildValue("(iOKKOO)", static_cast<int>(result.outcome), status.get(),
                       static_cast<unsigned long long>(result.step),
                       static_cast<unsigned long long>(result.ticket),
                       result.staged ? Py_True : Py_False, shards.get());
}

// result(call): None, or of a push (outcome, (code, message), step, ticket, staged, shards).
PyObject* Result(PyObject*, PyObject* capsule) {
  const Pending* const pending = PendingOf(capsule);
  if (pending == nullptr) return nullptr;
  if (!pending->ready()) {
    PyErr_SetString(PyExc_RuntimeError, "the call is not done");
    return nullptr;
  }
  if (const auto* const push = std::get_if<Future<PushResult>>(&pending->future)) {
    return PushResultTuple(push->Wait());
  }
  const absl::Status& status = std::get<Future<absl::Status>>(pending->future).Wait();
  return status.ok() ? None() : Raise(status);
}

// retry(push call, deadline or None): continues a push whose outcome is unknown.
PyObject* Retry(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  PyObject* seconds = nullptr;
  absl::Duration deadline = absl::ZeroDuration();
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &seconds) == 0 ||
      !ReadSeconds(seconds, "deadline", &deadline)) {
    return nullptr;
  }
  const Pending* const before = PendingOf(capsule);
  if (before == nullptr) return nullptr;
  const auto* const push = std::get_if<Future<PushResult>>(&before->future);
  const std::shared_ptr<Client> client = before->connection->client;
  if (push == nullptr || !push->ready() || client == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "only a push that is done, of an open client, is retried");
    return nullptr;
  }
  auto pending = std::make_unique<Pending>();
  pending->connection = before->connection;
  {
    const WithoutGil without;
    pending->future = client->Retry(push->Wait(), deadline);
  }
  return NewPending(std::move(pending));
}

// --- steps of trainers

// Calls `step(slice)` until it is over, or a signal's handler raises.
template <typename Step>
absl::Status InSlices(const Step& step, bool* interrupted) {
  for (;;) {
    absl::Status status;
    {
      const WithoutGil without;
      status = step(absl::Milliseconds(500));
    }
    *interrupted = PyErr_CheckSignals() != 0;
    if (*interrupted || !absl::IsDeadlineExceeded(status)) return status;
  }
}

// trainer_step(client, what, step): what is "join", "begin", "end" or "leave". The step to begin
// with, of join.
PyObject* TrainerStep(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* what_text = nullptr;
  unsigned long long step = 0;
  if (PyArg_ParseTuple(arguments, "OsK", &capsule, &what_text, &step) == 0) return nullptr;
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  const std::shared_ptr<Client> client = connection->client;
  const std::string what = what_text;
  uint64_t first = 0;
  bool interrupted = false;
  const absl::Status status = InSlices(
      [&](absl::Duration slice) {
        if (what == "begin") return client->BeginStep(step, slice);
        if (what == "end") return client->EndStep(step, slice);
        if (what == "leave") return client->LeaveTrainers(slice);
        const absl::StatusOr<uint64_t> joined = client->JoinTrainers(slice);
        if (joined.ok()) first = *joined;
        return joined.status();
      },
      &interrupted);
  if (interrupted) return nullptr;
  return status.ok() ? PyLong_FromUnsignedLongLong(first) : Raise(status);
}

// stats(client): counters since connect, by name.
PyObject* Stats(PyObject*, PyObject* capsule) {
  const std::shared_ptr<Connection> connection = ConnectionOf(capsule);
  if (connection == nullptr) return nullptr;
  const ClientStats s = connection->client->Stats();
  return Py_BuildValue("{sKsKsKsKsKsKsKsKsK}", "ids_asked", s.ids_asked, "rows_pulled",
                       s.rows_pulled, "rows_pushed", s.rows_pushed, "bytes_sent", s.bytes_sent,
                       "bytes_received", s.bytes_received, "messages", s.messages, "retries",
                       s.retries, "wrong_epoch", s.wrong_epoch, "reconnects", s.reconnects);
}

}  // namespace

PyMethodDef client_methods[] = {
    {"connect", &Connect, METH_VARARGS, nullptr},
    {"connect_local", &ConnectInProcess, METH_VARARGS, nullptr},
    {"close", &CloseCall, METH_O, nullptr},
    {"create_table", &CreateTable, METH_VARARGS, nullptr},
    {"open_table", &OpenTable, METH_VARARGS, nullptr},
    {"drop_table", &DropTable, METH_VARARGS, nullptr},
    {"table_options", &TableOptionsCall, METH_O, nullptr},
    {"table_parts", &TableParts, METH_O, nullptr},
    {"list_tables", &ListTables, METH_O, nullptr},
    {"pull", &Pull, METH_VARARGS, nullptr},
    {"push", &Push, METH_VARARGS, nullptr},
    {"delete_rows", &DeleteRows, METH_VARARGS, nullptr},
    {"check_traceparent", &CheckTrace, METH_O, nullptr},
    {"is_done", &IsDone, METH_O, nullptr},
    {"wait", &Wait, METH_VARARGS, nullptr},
    {"when_done", &WhenDone, METH_VARARGS, nullptr},
    {"result", &Result, METH_O, nullptr},
    {"retry", &Retry, METH_VARARGS, nullptr},
    {"trainer_step", &TrainerStep, METH_VARARGS, nullptr},
    {"stats", &Stats, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hotbed::python
