// Checkpoints, and tables that are followed.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/tables/table_option.h"
#include "hotbed/arrays.h"
#include "hotbed/changes.h"
#include "hotbed/checkpoint.h"
#include "hotbed/row_life.h"
#include "hotbed/top_k.h"
#include "python/binding/arguments.h"
#include "python/binding/arrays.h"
#include "python/binding/calls.h"
#include "python/binding/errors.h"
#include "python/binding/handles.h"
#include "python/binding/interrupt.h"
#include "python/binding/nearest.h"

namespace hotbed::python {
namespace {

constexpr char kStream[] = "hotbed.stream";
constexpr absl::Duration kSlice = absl::Milliseconds(50);  // then signals are looked at

PyObject* SizesOf(const std::vector<CheckpointTableSize>& tables) {
  Owned list(PyList_New(0));
  for (const CheckpointTableSize& table : tables) {
    const Owned one(Py_BuildValue("{sssKsKsK}", "name", table.name.c_str(), "shards", table.shards,
                                  "rows", table.rows, "bytes", table.bytes));
    if (!list || !one || PyList_Append(list.get(), one.get()) != 0) return nullptr;
  }
  return list.Release();
}

// A capsule of a connection, or the address of a cluster. False: there is an exception.
struct ClusterArgument {
  std::shared_ptr<Connection> connection;  // null: `address`
  const char* address = nullptr;

  bool Read(PyObject* target) {
    if (PyCapsule_CheckExact(target)) return (connection = ConnectionOf(target)) != nullptr;
    address = PyUnicode_AsUTF8AndSize(target, nullptr);
    return address != nullptr;
  }
};

// save_checkpoint(target, directory, name, (table, ...), bytes_per_s, incremental, at_step, group,
// compress): at_step below 0: at none.
PyObject* Save(PyObject*, PyObject* arguments) {
  PyObject* target = nullptr;
  ClusterArgument cluster;
  const char* directory = nullptr;
  const char* name = nullptr;
  PyObject* tables = nullptr;
  unsigned long long rate = 0;
  int incremental = 0;
  long long at_step = 0;
  const char* group = nullptr;
  const char* compress = nullptr;
  if (PyArg_ParseTuple(arguments, "OssOKpLss", &target, &directory, &name, &tables, &rate,
                       &incremental, &at_step, &group, &compress) == 0 ||
      !cluster.Read(target)) {
    return nullptr;
  }
  SaveOptions options;
  options.directory = directory;
  options.name = name;
  options.bytes_per_s = rate;
  options.incremental = incremental != 0;
  if (at_step >= 0) options.at_step = static_cast<uint64_t>(at_step);
  options.group = group;
  options.compress = compress;
  for (Py_ssize_t i = 0; i < PyTuple_Size(tables); ++i) {
    if (!ReadText(PyTuple_GetItem(tables, i), &options.tables.emplace_back())) return nullptr;
  }
  bool interrupted = false;
  options.stop = StopsIf(&interrupted);
  absl::StatusOr<SavedCheckpoint> saved;
  {
    const WithoutGil without;
    saved = cluster.connection != nullptr
                ? SaveCheckpoint(cluster.connection->client.get(), options)
                : SaveCheckpoint(cluster.address, options);
  }
  if (interrupted && PyErr_Occurred() != nullptr) return nullptr;
  if (!saved.ok()) return Raise(saved.status());
  const Owned sizes(SizesOf(saved->tables));
  if (!sizes) return nullptr;
  return Py_BuildValue("{sssssKsO}", "path", saved->path.c_str(), "parent", saved->parent.c_str(),
                       "at_step", static_cast<unsigned long long>(saved->at_step), "tables",
                       sizes.get());
}

// restore_checkpoint(target, checkpoint, ((table, as), ...), durability, weight type, shards,
// sessions): texts may be empty.
PyObject* Restore(PyObject*, PyObject* arguments) {
  PyObject* target = nullptr;
  ClusterArgument cluster;
  const char* checkpoint = nullptr;
  PyObject* tables = nullptr;
  const char* durability = nullptr;
  const char* weight_type = nullptr;
  unsigned long long shards = 0;
  int sessions = 0;
  if (PyArg_ParseTuple(arguments, "OsOssKi", &target, &checkpoint, &tables, &durability,
                       &weight_type, &shards, &sessions) == 0 ||
      !cluster.Read(target)) {
    return nullptr;
  }
  RestoreOptions options;
  options.checkpoint = checkpoint;
  options.shards = static_cast<uint32_t>(shards);
  options.sessions = static_cast<RestoredSessions>(sessions);
  for (Py_ssize_t i = 0; i < PyTuple_Size(tables); ++i) {
    const char* name = nullptr;
    const char* as = nullptr;
    if (PyArg_ParseTuple(PyTuple_GetItem(tables, i), "ss", &name, &as) == 0) return nullptr;
    options.tables.push_back({name, as});
  }
  TableSpec asked;
  for (const auto& [option, text] :
       {std::pair("durability", durability), std::pair("weight-type", weight_type)}) {
    if (*text == '\0') continue;
    const absl::Status set = SetTableOption(*FindTableOption(option), text, &asked);
    if (!set.ok()) return Raise(set);
  }
  if (*durability != '\0') {
    options.durability = asked.durability;
    options.replicas = asked.replicas;
  }
  if (*weight_type != '\0') options.weight_type = asked.weight_type;
  absl::StatusOr<RestoredCheckpoint> restored;
  {
    const WithoutGil without;
    restored = cluster.connection != nullptr
                   ? RestoreCheckpoint(cluster.connection->client.get(), options)
                   : RestoreCheckpoint(cluster.address, options);
  }
  if (!restored.ok()) return Raise(restored.status());
  const Owned sizes(SizesOf(restored->tables));
  if (!sizes) return nullptr;
  return Py_BuildValue("{sssOsO}", "path", restored->path.c_str(), "sessions_continue",
                       restored->sessions_continue ? Py_True : Py_False, "tables", sizes.get());
}

// fetch_checkpoint(target, checkpoint, directory)
PyObject* Fetch(PyObject*, PyObject* arguments) {
  PyObject* target = nullptr;
  ClusterArgument cluster;
  const char* checkpoint = nullptr;
  const char* directory = nullptr;
  if (PyArg_ParseTuple(arguments, "Oss", &target, &checkpoint, &directory) == 0 ||
      !cluster.Read(target)) {
    return nullptr;
  }
  FetchOptions options;
  options.checkpoint = checkpoint;
  options.directory = directory;
  bool interrupted = false;
  options.stop = StopsIf(&interrupted);
  absl::StatusOr<FetchedCheckpoint> fetched;
  {
    const WithoutGil without;
    fetched = cluster.connection != nullptr
                  ? FetchCheckpoint(cluster.connection->client.get(), options)
                  : FetchCheckpoint(cluster.address, options);
  }
  if (interrupted && PyErr_Occurred() != nullptr) return nullptr;
  if (!fetched.ok()) return Raise(fetched.status());
  return Py_BuildValue("{sssKsKsKsK}", "path", fetched->path.c_str(), "files",
                       static_cast<unsigned long long>(fetched->files), "bytes",
                       static_cast<unsigned long long>(fetched->bytes), "files_fetched",
                       static_cast<unsigned long long>(fetched->files_fetched), "bytes_fetched",
                       static_cast<unsigned long long>(fetched->bytes_fetched));
}

// --- arrays

PyObject* DoneWith(const absl::StatusOr<TableArraysDone>& done, bool interrupted) {
  if (interrupted && PyErr_Occurred() != nullptr) return nullptr;
  if (!done.ok()) return Raise(done.status());
  return Py_BuildValue("{sKsIsKsO}", "rows", static_cast<unsigned long long>(done->rows), "dim",
                       done->dim, "bytes", static_cast<unsigned long long>(done->bytes), "resumed",
                       done->resumed ? Py_True : Py_False);
}

// export_table(target, table, weights, ids, state, bytes_per_s): texts may be empty.
PyObject* Export(PyObject*, PyObject* arguments) {
  PyObject* target = nullptr;
  ClusterArgument cluster;
  const char* table = nullptr;
  const char* weights = nullptr;
  const char* ids = nullptr;
  const char* state = nullptr;
  unsigned long long rate = 0;
  if (PyArg_ParseTuple(arguments, "OssssK", &target, &table, &weights, &ids, &state, &rate) == 0 ||
      !cluster.Read(target)) {
    return nullptr;
  }
  ExportOptions options;
  options.weights = weights;
  options.ids = ids;
  options.state = state;
  options.bytes_per_s = rate;
  bool interrupted = false;
  options.stop = StopsIf(&interrupted);
  absl::StatusOr<TableArraysDone> done;
  {
    const WithoutGil without;
    done = cluster.connection != nullptr
               ? ExportTable(cluster.connection->client.get(), table, options)
               : ExportTable(cluster.address, table, options);
  }
  return DoneWith(done, interrupted);
}

// import_table(target, table, ((option, text), ...), weights, tensor, ids, state)
PyObject* Import(PyObject*, PyObject* arguments) {
  PyObject* target = nullptr;
  ClusterArgument cluster;
  const char* table = nullptr;
  PyObject* items = nullptr;
  const char* weights = nullptr;
  const char* tensor = nullptr;
  const char* ids = nullptr;
  const char* state = nullptr;
  if (PyArg_ParseTuple(arguments, "OsOssss", &target, &table, &items, &weights, &tensor, &ids,
                       &state) == 0 ||
      !cluster.Read(target)) {
    return nullptr;
  }
  TableOptions spec;
  spec.name = table;
  bool failed = false;
  const absl::Status read = ReadTable(items, &spec, &failed);
  if (failed) return nullptr;
  if (!read.ok()) return Raise(read);
  ImportOptions options;
  options.weights = weights;
  options.tensor = tensor;
  options.ids = ids;
  options.state = state;
  bool interrupted = false;
  options.stop = StopsIf(&interrupted);
  absl::StatusOr<TableArraysDone> done;
  {
    const WithoutGil without;
    done = cluster.connection != nullptr
               ? ImportTable(cluster.connection->client.get(), spec, options)
               : ImportTable(cluster.address, spec, options);
  }
  return DoneWith(done, interrupted);
}

// --- following

void DeleteStream(PyObject* capsule) {
  auto* const stream = static_cast<ChangeStream*>(PyCapsule_GetPointer(capsule, kStream));
  const WithoutGil without;
  delete stream;
}

ChangeStream* StreamOf(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kStream) != 0) {
    return static_cast<ChangeStream*>(PyCapsule_GetPointer(capsule, kStream));
  }
  PyErr_Format(PyExc_TypeError, "expected a %s of this package", kStream);
  return nullptr;
}

bool ReadPositions(PyObject* tuple, ChangePositions* positions) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i) {
    unsigned long long numbers[9] = {};
    if (PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "KKKKKKKKK", &numbers[0], &numbers[1],
                         &numbers[2], &numbers[3], &numbers[4], &numbers[5], &numbers[6],
                         &numbers[7], &numbers[8]) == 0) {
      return false;
    }
    positions->push_back({numbers[0],
                          {numbers[1], numbers[2], static_cast<uint32_t>(numbers[3]),
                           static_cast<uint32_t>(numbers[4])},
                          numbers[5],
                          numbers[6],
                          numbers[7],
                          numbers[8]});
  }
  return true;
}

// follow(target, table, positions, once, with_rows, with_statistics, first_id, last_id)
PyObject* FollowCall(PyObject*, PyObject* arguments) {
  const char* target = nullptr;
  const char* table = nullptr;
  PyObject* positions = nullptr;
  int once = 0;
  int with_rows = 0;
  int with_statistics = 0;
  unsigned long long first = 0;
  unsigned long long last = 0;
  FollowOptions options;
  if (PyArg_ParseTuple(arguments, "ssOpppKK", &target, &table, &positions, &once, &with_rows,
                       &with_statistics, &first, &last) == 0 ||
      !ReadPositions(positions, &options.from)) {
    return nullptr;
  }
  options.once = once != 0;
  options.with_rows = with_rows != 0;
  options.with_statistics = with_statistics != 0;
  options.first_id = first;
  options.last_id = last;
  absl::StatusOr<std::unique_ptr<ChangeStream>> stream;
  {
    const WithoutGil without;
    stream = Follow(target, table, options);
  }
  if (!stream.ok()) return Raise(stream.status());
  PyObject* const capsule = PyCapsule_New(stream->get(), kStream, &DeleteStream);
  if (capsule != nullptr) static_cast<void>(stream->release());
  return capsule;
}

// next_changes(stream, seconds): (shard, first, limit, column_first, column_limit, again, lsn, ids,
// rows, deleted, statistics), the last four as bytes; of statistics four u64 per id, as touches()
// has them. None if there was nothing, or the stream has ended.
PyObject* NextChanges(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  double seconds = 0;
  if (PyArg_ParseTuple(arguments, "Od", &capsule, &seconds) == 0) return nullptr;
  ChangeStream* const stream = StreamOf(capsule);
  if (stream == nullptr) return nullptr;
  absl::Duration left = absl::Seconds(seconds);
  absl::StatusOr<std::optional<RowChanges>> next;
  for (;;) {
    bool ended = false;
    {
      const WithoutGil without;
      next = stream->Next(std::min(left, kSlice));
      ended = stream->ended();
    }
    if (PyErr_CheckSignals() != 0) return nullptr;
    if (!next.ok()) return Raise(next.status());
    if (next->has_value()) break;
    left -= kSlice;
    if (ended || left <= absl::ZeroDuration()) return Owned::New(Py_None).Release();
  }
  const RowChanges& changes = **next;
  const ChangedRange& range = changes.range;
  std::vector<uint64_t> statistics;
  for (const ListedTouches& row : changes.statistics) {
    statistics.insert(statistics.end(),
                      {row.candidate ? 2u : 1u, uint64_t{row.touches}, row.time_s, row.step});
  }
  return Py_BuildValue(
      "(IKKIIOKy#y#y#y#)", changes.shard, static_cast<unsigned long long>(range.first),
      static_cast<unsigned long long>(range.limit), range.column_first, range.column_limit,
      changes.again ? Py_True : Py_False, static_cast<unsigned long long>(changes.lsn),
      reinterpret_cast<const char*>(changes.ids.data()),
      static_cast<Py_ssize_t>(changes.ids.size() * sizeof(uint64_t)),
      reinterpret_cast<const char*>(changes.rows.data()),
      static_cast<Py_ssize_t>(changes.rows.size() * sizeof(float)),
      reinterpret_cast<const char*>(changes.deleted.data()),
      static_cast<Py_ssize_t>(changes.deleted.size() * sizeof(uint64_t)),
      reinterpret_cast<const char*>(statistics.data()),
      static_cast<Py_ssize_t>(statistics.size() * sizeof(uint64_t)));
}

// --- top-k

// top_k(table, vectors, k, metric, ids or None, first_id, last_id, deadline or None): the rows per
// vector, and ids (u64) and scores (fp64) of all as bytes.
PyObject* TopKOf(PyObject*, PyObject* arguments) {
  PyObject *capsule, *vectors, *ids, *deadline;
  long long k = 0;
  const char* metric = nullptr;
  unsigned long long first = 0;
  unsigned long long last = 0;
  TopKOptions options;
  if (PyArg_ParseTuple(arguments, "OOLsOKKO", &capsule, &vectors, &k, &metric, &ids, &first, &last,
                       &deadline) == 0 ||
      !ReadMetric(metric, &options.metric) ||
      !ReadSeconds(deadline, "deadline", &options.deadline)) {
    return nullptr;
  }
  const TableHandle* const handle = TableOf(capsule);
  if (handle == nullptr) return nullptr;
  options.first_id = first;
  options.last_id = last;
  Borrowed borrowed;
  ArrayView shape;
  absl::Span<const float> floats;
  if (!shape.Take(vectors, "vectors", /*writable=*/false) ||
      !TakeFloats(vectors, "vectors", shape.elements(), "floats", &borrowed, &floats)) {
    return nullptr;
  }
  absl::Span<const uint64_t> only;
  if (ids != Py_None) {
    if (!TakeIds(ids, "filter", handle->table, &borrowed, &only)) return nullptr;
    options.only_ids = only;
  }
  absl::StatusOr<std::vector<std::vector<ScoredRow>>> nearest;
  {
    const std::shared_ptr<Client> client = handle->connection->client;
    const uint32_t rows = static_cast<uint32_t>(std::clamp<long long>(k, 0, UINT32_MAX));
    const WithoutGil without;
    nearest = TopK(client.get(), handle->table, floats, rows, options);
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!nearest.ok()) return Raise(nearest.status());
  return NearestOf(*nearest);
}

// touches(table, ids, deadline or None): per id 5 numbers of 64 bits, as bytes: 0, 1 (a row) or 2
// (a candidate), touches, time, step; f32 shows and f32 clicks.
PyObject* TouchesOfRows(PyObject*, PyObject* arguments) {
  PyObject *capsule, *ids, *deadline;
  absl::Duration within = absl::ZeroDuration();
  if (PyArg_ParseTuple(arguments, "OOO", &capsule, &ids, &deadline) == 0 ||
      !ReadSeconds(deadline, "deadline", &within)) {
    return nullptr;
  }
  const TableHandle* const handle = TableOf(capsule);
  if (handle == nullptr) return nullptr;
  Borrowed borrowed;
  absl::Span<const uint64_t> numbers;
  if (!TakeIds(ids, "ids", handle->table, &borrowed, &numbers)) return nullptr;
  absl::StatusOr<std::vector<RowLife>> rows;
  {
    const std::shared_ptr<Client> client = handle->connection->client;
    const WithoutGil without;
    rows = ReadTouches(client.get(), handle->table, numbers, within);
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!rows.ok()) return Raise(rows.status());
  std::vector<uint64_t> words;
  for (const RowLife& row : *rows) {
    const uint64_t found = row.exists ? 1 : row.candidate ? 2 : 0;
    const std::array<float, 2> shown = {row.shows, row.clicks};
    words.insert(words.end(),
                 {found, row.touches, row.time_s, row.step, std::bit_cast<uint64_t>(shown)});
  }
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(words.data()),
                                   static_cast<Py_ssize_t>(words.size() * sizeof(uint64_t)));
}

// count_by_life(table, ((option, value), ...), deadline or None): (rows, expires, evicts)
PyObject* LifeOfRows(PyObject*, PyObject* arguments) {
  PyObject *capsule, *options, *deadline;
  absl::Duration within = absl::ZeroDuration();
  if (PyArg_ParseTuple(arguments, "OOO", &capsule, &options, &deadline) == 0 ||
      !ReadSeconds(deadline, "deadline", &within)) {
    return nullptr;
  }
  const TableHandle* const handle = TableOf(capsule);
  if (handle == nullptr) return nullptr;
  TableSpec spec = handle->table->options();
  bool failed = false;
  const absl::Status read = ReadTable(options, &spec, &failed);
  if (failed) return nullptr;
  if (!read.ok()) return Raise(read);
  absl::StatusOr<LifeCount> count;
  {
    const std::shared_ptr<Client> client = handle->connection->client;
    const WithoutGil without;
    count = CountByLife(client.get(), handle->table, spec.life, within);
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  if (!count.ok()) return Raise(count.status());
  return Py_BuildValue("(KKK)", static_cast<unsigned long long>(count->rows),
                       static_cast<unsigned long long>(count->expires),
                       static_cast<unsigned long long>(count->evicts));
}

// change_positions(stream): a tuple of 9 numbers for each part.
PyObject* Positions(PyObject*, PyObject* capsule) {
  const ChangeStream* const stream = StreamOf(capsule);
  if (stream == nullptr) return nullptr;
  Owned list(PyList_New(0));
  for (const RangePosition& p : stream->Positions()) {
    const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    const Owned one(Py_BuildValue("(KKKKKKKKK)", number(p.table), number(p.range.first),
                                  number(p.range.limit), number(p.range.column_first),
                                  number(p.range.column_limit), number(p.epoch), number(p.lsn),
                                  number(p.seen_epoch), number(p.seen_lsn)));
    if (!list || !one || PyList_Append(list.get(), one.get()) != 0) return nullptr;
  }
  return PyList_AsTuple(list.get());
}

PyObject* HasEnded(PyObject*, PyObject* capsule) {
  const ChangeStream* const stream = StreamOf(capsule);
  if (stream == nullptr) return nullptr;
  return PyBool_FromLong(stream->ended() ? 1 : 0);
}

}  // namespace

PyMethodDef whole_table_methods[] = {
    {"save_checkpoint", &Save, METH_VARARGS, nullptr},
    {"fetch_checkpoint", &Fetch, METH_VARARGS, nullptr},
    {"restore_checkpoint", &Restore, METH_VARARGS, nullptr},
    {"export_table", &Export, METH_VARARGS, nullptr},
    {"import_table", &Import, METH_VARARGS, nullptr},
    {"follow", &FollowCall, METH_VARARGS, nullptr},
    {"top_k", &TopKOf, METH_VARARGS, nullptr},
    {"touches", &TouchesOfRows, METH_VARARGS, nullptr},
    {"count_by_life", &LifeOfRows, METH_VARARGS, nullptr},
    {"next_changes", &NextChanges, METH_VARARGS, nullptr},
    {"change_positions", &Positions, METH_O, nullptr},
    {"has_ended", &HasEnded, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hotbed::python
