// A serving server: read copies of tables, the data port that answers lookups of them, and the
// reports to the coordinator. It owns no shards, is a member of none, and nobody waits for it.
// Thread-safe.
#ifndef HOTBED_SERVING_SERVING_PROCESS_H_
#define HOTBED_SERVING_SERVING_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "admin/admin_server.h"
#include "common/clock.h"
#include "ports/port.h"
#include "security/server_security.h"
#include "serving/rows/rows_on_device.h"

namespace hotbed {

struct ServingOptions {
  std::string name;
  std::string coordinators;  // HOST:PORT,...
  PortOptions port;
  ServerSecurity security;
  std::string advertise;        // empty: as bound
  std::string advertise_admin;  // empty: as bound
  std::string failure_domain;   // empty: the host part of the data port
  std::string admin_listen = "127.0.0.1:0";
  std::string http_listen;                  // for lookups by HTTP; empty: none
  bool http_tls = false;                    // there, with the files of `security`
  int64_t http_drain_ns_max = 0;            // a stop waits so long for answers to requests there
  uint64_t rows_bytes_max = 0;              // memory of rows
  std::string disk;                         // the folder of all rows; empty: memory alone
  uint64_t message_bytes_max = 16 << 20;    // a request, and an answer
  uint64_t answer_bytes_max = 64ull << 20;  // all answers in flight
  uint64_t grpc_bytes_max = 256ull << 20;   // memory of gRPC's own
  uint64_t run = 0;                         // random
  std::shared_ptr<ServedDevice> device;     // null: rows are in memory and on disk alone
};

class ServingProcess {
 public:
  // `clock` outlives it. Unavailable names an address that is in use.
  static absl::StatusOr<std::unique_ptr<ServingProcess>> Start(const ServingOptions& options,
                                                               const Clock* clock);
  virtual ~ServingProcess() = default;  // Stop
  virtual std::string address() const = 0;
  virtual std::string admin_address() const = 0;
  virtual std::string http_address() const = 0;  // empty without http_listen
  // Blocks until the coordinator knows this server; Cancelled after Stop.
  virtual absl::Status WaitRegistered() = 0;
  // Tells the coordinator, answers what is under way, and ends all threads. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_SERVING_PROCESS_H_
