// Configuration of a daemon. A flag goes before the environment, before the YAML file, before the
// default; errors in any of them are reported.
//
//   Options o;
//   ConfigSchema schema("hotbed-server", "Holds shards of embedding tables and serves them.");
//   schema.AddHostPort("listen", &o.listen, "Where the data port listens.", 0);
//   schema.AddBytes("host-bytes", &o.host_bytes, "Memory for rows, caches and buffers.",
//                   {.min = 64 << 20});
//   schema.AddMillis("drain-ms-max", &o.drain_ms_max, "Longest time for a clean stop.");
//   int exit_code;
//   if (!schema.Load(argc, argv, &exit_code)) return exit_code;
//
// One name serves all four sources: flag --host-bytes=1GiB (or "--host-bytes 1GiB"), environment
// HOTBED_HOST_BYTES (prefix HOTBED_, dashes to underscores, capitals), YAML key host-bytes.
// --config=FILE names the YAML file. Sizes take B, KiB, MiB, GiB, TiB; durations ns, us, ms, s,
// min, h. An unknown flag or key is an error that names the nearest known one; an unknown HOTBED_*
// variable is a warning. --print-config prints the commented YAML with every value and where it
// came from.
#ifndef HOTBED_CONFIG_CONFIG_H_
#define HOTBED_CONFIG_CONFIG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/units.h"

namespace hotbed {

struct Limits {
  double min = 0;
  double max = 1.8e19;
};

class ConfigSchema {
 public:
  ConfigSchema(std::string program, std::string summary);
  ~ConfigSchema();

  // `*value` holds the default when added, the resolved value after Load. Pointers must outlive the
  // schema.
  void Add(const std::string& name, std::string* value, const std::string& placeholder,
           const std::string& help);
  // HOST:PORT with a port from `port_min` to 65535, or empty. The program decides whether an empty
  // value is allowed.
  void AddHostPort(const std::string& name, std::string* value, const std::string& help,
                   int port_min);
  // One such address or several with commas between, or empty; ports from 1. "hotbed://" may stand
  // before them, and is left out of `*value`.
  void AddCoordinators(const std::string& name, std::string* value, const std::string& help);
  void AddChoice(const std::string& name, std::string* value,
                 const std::vector<std::string>& choices, const std::string& help);
  void AddBool(const std::string& name, bool* value, const std::string& help);
  void AddInt(const std::string& name, int64_t* value, const std::string& help, Limits limits = {});
  void AddDouble(const std::string& name, double* value, const std::string& help,
                 Limits limits = {});
  void AddBytes(const std::string& name, uint64_t* value, const std::string& help,
                Limits limits = {});
  void AddMillis(const std::string& name, int64_t* value, const std::string& help,
                 Limits limits = {});

  // Resolves all sources. False: the program must exit with *exit_code, which is 0 after --help,
  // --version and --print-config, and 2 after an error that was printed to stderr.
  bool Load(int argc, char** argv, int* exit_code);
  // The same without printing or exiting, for tests. `environment` stands for that of the process.
  absl::Status Resolve(const std::vector<std::string>& args,
                       const std::vector<std::pair<std::string, std::string>>& environment);

  // After Resolve: warnings, one line each. Load logs them.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // After Resolve: whether an argument asked for this text instead of a run.
  enum class Request { kRun, kHelp, kVersion, kPrintConfig };
  Request request() const { return request_; }

  // Commented YAML: every key with help, effective value and origin.
  std::string Print() const;
  std::string Help() const;

 private:
  struct Entry;
  // One setting as a source gives it; `origin` names source and place.
  struct Setting {
    std::string name;
    std::string text;
    std::string origin;
  };

  void AddEntry(Entry entry);
  // `read` gives the value of a text, or says what is wrong with it; `print` writes a YAML scalar
  // that `read` takes.
  template <typename T>
  void AddValue(const std::string& name, T* value, const std::string& placeholder,
                const std::string& help, std::function<absl::StatusOr<T>(const std::string&)> read,
                std::function<std::string(const T&)> print);
  Entry* Find(const std::string& name) const;
  absl::Status Unknown(const std::string& what, const std::string& name) const;
  absl::Status ParseArguments(const std::vector<std::string>& args, std::vector<Setting>* settings);
  std::vector<Setting> FromEnvironment(
      const std::vector<std::pair<std::string, std::string>>& environment);
  absl::Status Apply(const std::vector<Setting>& settings);

  std::string program_;
  std::string summary_;
  std::string config_path_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::string> warnings_;
  Request request_ = Request::kRun;
};

}  // namespace hotbed

#endif  // HOTBED_CONFIG_CONFIG_H_
