#include "cli/cluster/child_process.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kTailBytes = 16384;

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() { close(fd_); }
  OwnedFd(const OwnedFd&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<std::unique_ptr<OwnedFd>> OpenForAppend(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) return std::make_unique<OwnedFd>(fd);
  return absl::PermissionDeniedError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeProgram(char* const* argv, int out_fd, int log_fd, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  const int null_fd = open("/dev/null", O_RDONLY);
  dup2(null_fd, STDIN_FILENO);
  dup2(out_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  // The parent forked with all signals blocked. One that was sent meanwhile arrives now and ends
  // this process; the parent's own handler would have swallowed it.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(
    const std::vector<std::string>& argv, const std::string& log_path,
    const std::string& stdout_path) {
  if (access(argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("program ", argv[0], " cannot be run: ", std::strerror(errno)));
  }
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<OwnedFd> log, OpenForAppend(log_path));
  std::unique_ptr<OwnedFd> out;
  if (!stdout_path.empty()) {
    HOTBED_ASSIGN_OR_RETURN(out, OpenForAppend(stdout_path));
  }
  std::vector<char*> pointers;
  for (const std::string& arg : argv) pointers.push_back(const_cast<char*>(arg.c_str()));
  pointers.push_back(nullptr);
  const int out_fd = out == nullptr ? log->fd() : out->fd();
  const pid_t parent = getpid();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(pointers.data(), out_fd, log->fd(), parent);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", argv[0], ": ", std::strerror(errno)));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
}

ChildProcess::~ChildProcess() {
  if (!Running()) return;
  Signal(SIGKILL);
  WaitFor(absl::Seconds(10));
}

bool ChildProcess::Running() {
  if (ended_) return false;
  const pid_t got = waitpid(pid_, &wait_status_, WNOHANG);
  if (got == pid_ || (got < 0 && errno == ECHILD)) ended_ = true;
  return !ended_;
}

bool ChildProcess::WaitFor(absl::Duration timeout) {
  const absl::Time limit = absl::Now() + timeout;
  while (Running()) {
    if (absl::Now() >= limit) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

void ChildProcess::Signal(int signal) {
  if (!ended_) kill(pid_, signal);
}

int ChildProcess::exit_code() const {
  return WIFEXITED(wait_status_) ? WEXITSTATUS(wait_status_) : -1;
}

std::string ChildProcess::exit_text() const {
  if (WIFSIGNALED(wait_status_)) {
    const int signal = WTERMSIG(wait_status_);
    return absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exit code ", exit_code());
}

std::string OwnDirectory() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0) return ".";
  const std::string own(path, static_cast<size_t>(n));
  return own.substr(0, own.rfind('/'));
}

std::string FindProgram(const std::string& name) {
  const char* const folders = getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(folders == nullptr ? "" : folders, ':')) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::string LastLines(const std::string& path, int lines) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const uint64_t size = static_cast<uint64_t>(in.tellg());
  const uint64_t from = size > kTailBytes ? size - kTailBytes : 0;
  in.seekg(static_cast<std::streamoff>(from));
  std::string text(size - from, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (all.size() > static_cast<size_t>(lines)) all.erase(all.begin(), all.end() - lines);
  return absl::StrJoin(all, "\n");
}

}  // namespace hotbed
