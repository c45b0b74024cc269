#include "bench/roofs/peer_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/roofs/roofs.h"

namespace hotbed::roofs {

absl::StatusOr<std::unique_ptr<PeerProcess>> PeerProcess::Start(
    const std::vector<std::string>& args) {
  // All memory is allocated before fork: between fork and exec only system calls are safe.
  std::vector<std::string> words = {"hotbed-roof-peer", kPeerArgument};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return absl::InternalError("pipe failed");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::InternalError(absl::StrCat("fork failed: ", std::strerror(errno)));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  auto peer = std::unique_ptr<PeerProcess>(new PeerProcess);
  peer->pid_ = pid;
  std::string line;
  char c;
  while (read(pipe_ends[0], &c, 1) == 1 && c != '\n') line += c;
  close(pipe_ends[0]);
  if (!absl::SimpleAtoi(line, &peer->port_)) {
    return absl::InternalError(absl::StrCat("the peer process of a roof said '", line,
                                            "' instead of its port: main must call ServeIfAsked"));
  }
  return peer;
}

PeerProcess::~PeerProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TellPort(int port) {
  std::printf("%d\n", port);
  std::fflush(stdout);
}

std::optional<int> ServeIfAsked(int argc, char** argv) {
  if (argc < 3 || std::strcmp(argv[1], kPeerArgument) != 0) return std::nullopt;
  const std::string kind = argv[2];
  const std::vector<std::string> args(argv + 3, argv + argc);
  if (kind == "grpc") return ServeGrpc(args);
  if (kind == "tcp") return ServeTcp(args);
  return 1;
}

}  // namespace hotbed::roofs
