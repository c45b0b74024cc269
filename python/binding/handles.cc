#include "python/binding/handles.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "python/binding/errors.h"

namespace hotbed::python {
namespace {

std::atomic<int> forks{0};

constexpr char kConnection[] = "hotbed.client";
constexpr char kTable[] = "hotbed.table";
constexpr char kLookAhead[] = "hotbed.look_ahead";
constexpr char kEmbeddings[] = "hotbed.embeddings";
constexpr char kPending[] = "hotbed.call";

// False, and an exception: the client is closed, or of the process that this one was forked from.
bool IsUsable(const Connection& connection) {
  if (connection.generation != ForkGeneration()) {
    RaiseNamed("ForkedError",
               "this client was made before the process was forked, and its threads are in the "
               "parent; connect again in this process, or start workers by spawn");
    return false;
  }
  if (connection.client == nullptr) RaiseNamed("ClosedError", "this client is closed");
  return connection.client != nullptr;
}

bool IsOfThisProcess(const Connection& connection) {
  return connection.generation == ForkGeneration();
}

void* PointerOf(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) != 0) return PyCapsule_GetPointer(capsule, name);
  PyErr_Format(PyExc_TypeError, "expected a %s of this package", name);
  return nullptr;
}

// A capsule of a T that is deleted with it, without the GIL where `Blocks`.
template <typename T>
PyObject* NewCapsule(std::unique_ptr<T> value, const char* name, PyCapsule_Destructor destroy) {
  PyObject* const capsule = PyCapsule_New(value.get(), name, destroy);
  if (capsule != nullptr) static_cast<void>(value.release());
  return capsule;
}

template <typename T>
using Shared = std::shared_ptr<T>;

const Connection& ConnectionBehind(const Connection& connection) { return connection; }
template <typename Handle>
const Connection& ConnectionBehind(const Handle& handle) {
  return *handle.connection;
}

template <typename T>
PyObject* NewShared(Shared<T> value, const char* name, PyCapsule_Destructor destroy) {
  return NewCapsule(std::make_unique<Shared<T>>(std::move(value)), name, destroy);
}
template <typename T>
Shared<T> SharedOf(PyObject* capsule, const char* name) {
  const auto* const value = static_cast<Shared<T>*>(PointerOf(capsule, name));
  if (value == nullptr || !IsUsable(ConnectionBehind(**value))) return nullptr;
  return *value;
}
// The destructors wait for calls under way, whose callbacks may need the GIL.
template <typename T>
void DestroyShared(PyObject* capsule, const char* name) {
  auto* const value = static_cast<Shared<T>*>(PyCapsule_GetPointer(capsule, name));
  if (!IsOfThisProcess(ConnectionBehind(**value))) return;
  const WithoutGil without;
  delete value;
}

}  // namespace

int ForkGeneration() { return forks.load(std::memory_order_relaxed); }

void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}

void Sweep(Connection* connection) {
  std::vector<std::unique_ptr<Pending>>& dropped = connection->dropped;
  dropped.erase(std::remove_if(dropped.begin(), dropped.end(),
                               [](const auto& pending) { return pending->ready(); }),
                dropped.end());
}

void Close(Connection* connection) {
  std::vector<std::unique_ptr<Pending>> dropped = std::move(connection->dropped);
  connection->dropped.clear();
  std::shared_ptr<Client> client = std::move(connection->client);
  {
    const WithoutGil without;
    for (const auto& pending : dropped) {
      while (!pending->WaitFor(absl::Seconds(1))) {
      }
    }
    client.reset();
  }
}

PyObject* NewConnection(std::shared_ptr<Connection> connection) {
  return NewShared(std::move(connection), kConnection, [](PyObject* capsule) {
    auto* const value =
        static_cast<Shared<Connection>*>(PyCapsule_GetPointer(capsule, kConnection));
    if (!IsOfThisProcess(**value)) return;
    Close(value->get());
    delete value;
  });
}
std::shared_ptr<Connection> ConnectionOf(PyObject* capsule) {
  auto connection = SharedOf<Connection>(capsule, kConnection);
  if (connection != nullptr && !connection->dropped.empty()) Sweep(connection.get());
  return connection;
}

PyObject* NewTable(TableHandle table) {
  return NewCapsule(std::make_unique<TableHandle>(std::move(table)), kTable, [](PyObject* capsule) {
    auto* const handle = static_cast<TableHandle*>(PyCapsule_GetPointer(capsule, kTable));
    if (IsOfThisProcess(*handle->connection)) delete handle;
  });
}
const TableHandle* TableOf(PyObject* capsule) {
  const auto* const table = static_cast<TableHandle*>(PointerOf(capsule, kTable));
  return table != nullptr && IsUsable(*table->connection) ? table : nullptr;
}

PyObject* NewLookAhead(std::shared_ptr<LookAheadHandle> ahead) {
  return NewShared(std::move(ahead), kLookAhead,
                   [](PyObject* capsule) { DestroyShared<LookAheadHandle>(capsule, kLookAhead); });
}
std::shared_ptr<LookAheadHandle> LookAheadOf(PyObject* capsule) {
  return SharedOf<LookAheadHandle>(capsule, kLookAhead);
}

PyObject* NewEmbeddings(std::shared_ptr<EmbeddingsHandle> embeddings) {
  return NewShared(std::move(embeddings), kEmbeddings, [](PyObject* capsule) {
    DestroyShared<EmbeddingsHandle>(capsule, kEmbeddings);
  });
}
std::shared_ptr<EmbeddingsHandle> EmbeddingsOf(PyObject* capsule) {
  return SharedOf<EmbeddingsHandle>(capsule, kEmbeddings);
}

PyObject* NewPending(std::unique_ptr<Pending> pending) {
  return NewCapsule(std::move(pending), kPending, [](PyObject* capsule) {
    std::unique_ptr<Pending> pending(
        static_cast<Pending*>(PyCapsule_GetPointer(capsule, kPending)));
    if (!IsOfThisProcess(*pending->connection)) {
      static_cast<void>(pending.release());
    } else if (!pending->ready() && pending->connection->client != nullptr) {
      Connection* const connection = pending->connection.get();
      connection->dropped.push_back(std::move(pending));
    } else {
      const WithoutGil without;
      while (!pending->WaitFor(absl::Seconds(1))) {
      }
    }
  });
}
Pending* PendingOf(PyObject* capsule) {
  auto* const pending = static_cast<Pending*>(PointerOf(capsule, kPending));
  if (pending == nullptr || IsOfThisProcess(*pending->connection)) return pending;
  IsUsable(*pending->connection);
  return nullptr;
}

}  // namespace hotbed::python
