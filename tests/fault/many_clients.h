// Many clients of one table in one process, each with connections of its own, as a thousand
// trainers or programs that look rows up would have.
#ifndef HOTBED_TESTS_FAULT_MANY_CLIENTS_H_
#define HOTBED_TESTS_FAULT_MANY_CLIENTS_H_

#include <csignal>
#include <cstdint>
#include <string>

namespace hotbed {

struct ManyClientsOptions {
  std::string coordinator;
  std::string table;
  int clients = 1000;
  double seconds = 10;     // after all have connected
  double pulls_per_s = 1;  // of each client
  double deadline_ms = 60'000;
};

// Connects all, which each show by a pull; then all pull by turns, and now and then one of them
// gives way to a new one. Ends at once when `*stop` is not 0. A line of JSON: how long connecting
// took, pulls, connects, and errors of both.
std::string RunManyClients(const ManyClientsOptions& options, volatile sig_atomic_t* stop);

}  // namespace hotbed

#endif  // HOTBED_TESTS_FAULT_MANY_CLIENTS_H_
