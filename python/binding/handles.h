// The objects of the client that Python holds: capsules of clients, tables, embeddings and pending
// calls.
//
// A capsule of a client that another process inherited by fork is never used or freed there: the
// threads of the client did not come along.
#ifndef HOTBED_PYTHON_BINDING_HANDLES_H_
#define HOTBED_PYTHON_BINDING_HANDLES_H_

#include "python/binding/python_api.h"
// After Python's header, which insists on being the first.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "hotbed/look_ahead.h"
#include "python/binding/arrays.h"

namespace hotbed::python {

// Grows in a child process after a fork.
int ForkGeneration();
void WatchForks();

struct Pending;

struct Connection {
  std::shared_ptr<Client> client;  // null: closed
  int generation = ForkGeneration();
  // Calls whose futures were dropped before they were ready: their arrays are in use until then.
  std::vector<std::unique_ptr<Pending>> dropped;
};

struct TableHandle {
  std::shared_ptr<Connection> connection;
  const Table* table = nullptr;
};

struct LookAheadHandle {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Client> client;  // outlives it
  std::unique_ptr<LookAhead> ahead;
};

struct EmbeddingsHandle {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Client> client;
  std::shared_ptr<LookAheadHandle> ahead;  // null: none
  std::unique_ptr<Embeddings> embeddings;
};

// The batch of one Forward, kept for its Backward.
struct ForwardStep {
  std::shared_ptr<EmbeddingsHandle> embeddings;
  JaggedBatch batch;
  EmbeddingOutput output;
};

// A call that may be under way, and what it borrows.
struct Pending {
  std::shared_ptr<Connection> connection;
  std::variant<Future<absl::Status>, Future<PushResult>> future;
  Borrowed borrowed;
  std::shared_ptr<ForwardStep> forward;  // of forward and backward calls
  std::shared_ptr<void> kept;            // other memory that the call uses

  bool ready() const {
    return std::visit([](const auto& f) { return f.ready(); }, future);
  }
  bool WaitFor(absl::Duration timeout) const {
    return std::visit([timeout](const auto& f) { return f.WaitFor(timeout); }, future);
  }
};

// --- capsules. The pointers live as long as the capsule; null: an exception is set, because the
// argument is something else, the client is closed, or this process was forked.
PyObject* NewConnection(std::shared_ptr<Connection> connection);
std::shared_ptr<Connection> ConnectionOf(PyObject* capsule);  // open
PyObject* NewTable(TableHandle table);
const TableHandle* TableOf(PyObject* capsule);
PyObject* NewLookAhead(std::shared_ptr<LookAheadHandle> ahead);
std::shared_ptr<LookAheadHandle> LookAheadOf(PyObject* capsule);
PyObject* NewEmbeddings(std::shared_ptr<EmbeddingsHandle> embeddings);
std::shared_ptr<EmbeddingsHandle> EmbeddingsOf(PyObject* capsule);
PyObject* NewPending(std::unique_ptr<Pending> pending);
Pending* PendingOf(PyObject* capsule);

// Frees what dropped calls borrowed, as far as they are ready.
void Sweep(Connection* connection);
// Waits for everything under way, and closes.
void Close(Connection* connection);

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_HANDLES_H_
