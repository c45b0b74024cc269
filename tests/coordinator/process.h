// A program as a child process of a test.
#ifndef HOTBED_TESTS_COORDINATOR_PROCESS_H_
#define HOTBED_TESTS_COORDINATOR_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace hotbed {

// A child process whose standard output and error are read through one pipe.
class Process {
 public:
  // `args` begins with the program.
  explicit Process(std::vector<std::string> args) {
    int pipe_fds[2];
    EXPECT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);  // no other child keeps it open
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if the test is killed
      dup2(pipe_fds[1], STDOUT_FILENO);
      dup2(pipe_fds[1], STDERR_FILENO);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(pipe_fds[1]);
    out_ = pipe_fds[0];
  }
  ~Process() {
    Signal(SIGKILL);
    Wait();
    close(out_);
  }
  // The first line that contains `text`; empty when the output ends before.
  std::string AwaitLine(const std::string& text) {
    std::string line;
    for (char c; read(out_, &c, 1) == 1;) {
      if (c != '\n') {
        line += c;
        continue;
      }
      if (line.find(text) != line.npos) return line;
      line.clear();
    }
    return "";
  }
  std::string ReadAll() {
    std::string all;
    for (char c; read(out_, &c, 1) == 1;) all += c;
    return all;
  }
  void Signal(int signal) {
    if (pid_ > 0) kill(pid_, signal);
  }
  bool Running() {
    siginfo_t info = {};
    return pid_ > 0 &&
           waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }
  // The exit status, or -1 when a signal ended it.
  int Wait() {
    int status = 0;
    if (pid_ > 0) {
      waitpid(pid_, &status, 0);
      pid_ = 0;
      exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    return exit_;
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
  int exit_ = -1;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_PROCESS_H_
