// The admin port (plaintext HTTP): /metrics, /healthz, /readyz, /statusz, /api/status, and pages of
// the process. The only folder that includes prometheus-cpp. Thread-safe.
#ifndef HOTBED_ADMIN_ADMIN_SERVER_H_
#define HOTBED_ADMIN_ADMIN_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// A status page as data. It is rendered as HTML for browsers, as aligned text for curl (by Accept
// and User-Agent), and as JSON at /api/status. Numbers are text with a unit for people, and raw in
// the JSON.
struct StatusTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};
struct StatusPage {
  std::string title;     // "hotbed-server s1"
  std::string subtitle;  // one line: address, state
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<StatusTable> tables;
  std::string json;  // a JSON document with every number, unrounded
};

// One of the things that must hold for a process to be ready. A client would find the same.
struct ReadyCondition {
  std::string name;  // "lease"
  bool holds = true;
  std::string found;  // for people, without the name: "ran out 3.1 s ago"
};

// A page of one kind of process. Browsers load nothing for it but pages of the same port.
struct AdminPage {
  std::string path;  // "/console"
  const char* type;  // "text/html; charset=utf-8"
  std::function<std::string()> body;
};

struct AdminOptions {
  std::string listen = "127.0.0.1:0";
  // Both must not block: they run on the port's thread.
  std::function<bool(std::string* why_not)> healthy;  // liveness: the event loops turn
  std::function<std::vector<ReadyCondition>()> ready;
  std::function<StatusPage()> status;
  // Whether who has this token may see the pages; empty: everybody may. Probes are for all. It may
  // read a file.
  std::function<bool(absl::string_view token)> may_read;
  std::vector<AdminPage> pages;  // the first one is shown at "/"; none: /statusz is
};

class AdminServer {
 public:
  // Unavailable names the address when the port is in use.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(AdminOptions options);
  virtual ~AdminServer() = default;
  virtual std::string address() const = 0;  // host:port as bound
};

}  // namespace hotbed

#endif  // HOTBED_ADMIN_ADMIN_SERVER_H_
