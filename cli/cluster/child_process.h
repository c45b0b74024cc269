// A program run as a child. Its standard output and error go to one file; it is killed when this
// process dies, whatever the reason, and stands in a process group of its own, so that Ctrl-C
// reaches it only through us. Thread-compatible; the thread that spawns must live as long as the
// child (the kernel ties the death signal to it).
#ifndef HOTBED_CLI_CLUSTER_CHILD_PROCESS_H_
#define HOTBED_CLI_CLUSTER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hotbed {

class ChildProcess {
 public:
  // `argv[0]` is the path of the program. `log_path` is appended to. NotFound when there is no such
  // program.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const std::vector<std::string>& argv,
                                                             const std::string& log_path,
                                                             const std::string& stdout_path = "");
  ~ChildProcess();  // SIGKILL, if it still runs
  ChildProcess(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Looks once. After it ended: exit_text() says how.
  bool Running();
  // False when it still runs after `timeout`.
  bool WaitFor(absl::Duration timeout);
  void Signal(int signal);
  int exit_code() const;          // -1 when a signal ended it; only after it ended
  std::string exit_text() const;  // "exit code 2", "killed by signal 9 (Killed)"

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  bool ended_ = false;
  int wait_status_ = 0;
};

// The directory that this program's own file is in: the other programs stand beside it.
std::string OwnDirectory();

// The last `lines` lines of a file, for error messages; empty when it cannot be read.
std::string LastLines(const std::string& path, int lines);

}  // namespace hotbed

#endif  // HOTBED_CLI_CLUSTER_CHILD_PROCESS_H_
