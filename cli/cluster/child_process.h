// A program run as a child. Its standard output and error go to one file. The kernel kills it when
// this process dies for any reason. It has a process group of its own, so that Ctrl-C reaches it
// only through us. Thread-compatible; the spawning thread must live as long as the child, because
// the kernel ties the death signal to that thread.
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
  // `argv[0]` is the path of the program. Output is appended to `log_path`. NotFound: there is no
  // such program.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const std::vector<std::string>& argv,
                                                             const std::string& log_path,
                                                             const std::string& stdout_path = "");
  ~ChildProcess();  // SIGKILL if it still runs
  ChildProcess(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Polls once. False: it has ended, and exit_text() describes how.
  bool Running();
  // False when it still runs after `timeout`.
  bool WaitFor(absl::Duration timeout);
  void Signal(int signal);
  int exit_code() const;          // -1 if a signal ended it; call only after the end
  std::string exit_text() const;  // "exit code 2", "killed by signal 9 (Killed)"

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  bool ended_ = false;
  int wait_status_ = 0;
};

// The directory of this program's own file; the other programs are there too.
std::string OwnDirectory();

// The path of a program in the folders of PATH; empty: there is none.
std::string FindProgram(const std::string& name);

// The last `lines` lines of a file, for error messages; empty when it cannot be read.
std::string LastLines(const std::string& path, int lines);

}  // namespace hotbed

#endif  // HOTBED_CLI_CLUSTER_CHILD_PROCESS_H_
