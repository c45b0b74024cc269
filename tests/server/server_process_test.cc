// hotbed-server as users start it: its output, its end, and its errors when it cannot start.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/fake_coordinator.h"

namespace hotbed {
namespace server_process_test {

using ::testing::HasSubstr;

class ServerProcessTest : public ::testing::Test {
 protected:
  struct Process {
    pid_t pid = -1;
    std::string out;
    std::string err;
  };

  void SetUp() override {
    std::string path = absl::StrCat(::testing::TempDir(), "/hotbed-server-XXXXXX");
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    dir_ = path;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
  }
  void TearDown() override {
    for (const Process& process : processes_) {
      kill(process.pid, SIGKILL);
      waitpid(process.pid, nullptr, 0);
    }
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(dir_);
  }

  std::vector<std::string> Flags(const std::string& name) const {
    return {absl::StrCat("--name=", name), absl::StrCat("--coordinator=127.0.0.1:", port_),
            absl::StrCat("--data-dir=", dir_, "/", name), "--host-bytes=64MiB"};
  }

  // Starts it; its output goes to files named in the result.
  Process Start(const std::vector<std::string>& flags) {
    Process process;
    process.out = absl::StrCat(dir_, "/out", started_);
    process.err = absl::StrCat(dir_, "/err", started_++);
    std::vector<std::string> words = {HOTBED_SERVER_BINARY};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process.pid = fork();
    if (process.pid == 0) {
      dup2(open(process.out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      dup2(open(process.err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    return process;
  }

  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // Until the file has the text, or for 30 s.
  static void AwaitText(const std::string& path, const std::string& text) {
    for (int i = 0; i < 3000 && !absl::StrContains(Read(path), text); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  // Its exit code; -1: it was still running after 30 s.
  static int Wait(const Process& process) {
    for (int i = 0; i < 3000; ++i) {
      int status = 0;
      if (waitpid(process.pid, &status, WNOHANG) == process.pid) {
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }

  // Runs one that cannot start.
  std::string RunToFailure(const std::vector<std::string>& flags, int exit_code = 1) {
    const Process process = Start(flags);
    EXPECT_EQ(Wait(process), exit_code) << Read(process.err);
    EXPECT_EQ(Read(process.out), "");
    return Read(process.err);
  }

  Process StartServing(const std::vector<std::string>& flags) {
    const Process process = Start(flags);
    processes_.push_back(process);
    AwaitText(process.out, "\n");
    EXPECT_THAT(Read(process.out), HasSubstr(" serving: data 127.0.0.1:")) << Read(process.err);
    return process;
  }

  std::string dir_;
  FakeCoordinator coordinator_;
  int port_ = 0;
  int started_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::vector<Process> processes_;
};

TEST_F(ServerProcessTest, ServesUntilSigtermAndRefusesWhatIsTaken) {
  std::vector<std::string> first_flags = Flags("s1");
  first_flags.push_back("--device=emulated");
  const Process first = StartServing(first_flags);
  EXPECT_THAT(Read(first.err), HasSubstr("device: emulated on the host, 64 MiB"));
  const std::string line = Read(first.out);
  EXPECT_EQ(line.rfind("hotbed-server s1 serving: data ", 0), 0u);
  EXPECT_THAT(line, HasSubstr(" admin 127.0.0.1:"));

  for (const auto& file : std::filesystem::recursive_directory_iterator(dir_ + "/s1")) {
    std::error_code gone;
    const std::filesystem::file_status status = file.status(gone);
    if (!std::filesystem::exists(status)) continue;
    EXPECT_EQ(status.permissions() & std::filesystem::perms(077), std::filesystem::perms::none)
        << file.path();
  }
  EXPECT_EQ(geteuid() == 0, absl::StrContains(Read(first.err), "running as root"));

  // Its data directory and its port are its own.
  std::vector<std::string> flags = Flags("s1");
  EXPECT_THAT(RunToFailure(flags), HasSubstr(absl::StrCat(dir_, "/s1")));
  flags = Flags("s2");
  const size_t at = line.find("data ") + 5;
  const std::string address = line.substr(at, line.find(' ', at) - at);
  flags.push_back(absl::StrCat("--listen=", address));
  const std::string error = RunToFailure(flags);
  EXPECT_THAT(error, HasSubstr(address));
  EXPECT_THAT(error, HasSubstr("Address already in use"));

  kill(first.pid, SIGTERM);
  EXPECT_EQ(Wait(first), 0) << Read(first.err);
  processes_.clear();
  EXPECT_TRUE(coordinator_.draining());
}

TEST_F(ServerProcessTest, SaysWhyItCannotStart) {
  EXPECT_THAT(RunToFailure(Flags("taken")), HasSubstr("the name taken belongs to server 3"));

  std::vector<std::string> flags = Flags("s1");
  flags.push_back("--device=cuda");
  flags.push_back("--device-bytes=1000TiB");  // more than any device has
  const std::string no_device = RunToFailure(flags);
  EXPECT_THAT(no_device, HasSubstr("--device=cuda: "));
  EXPECT_THAT(no_device, HasSubstr("--device=host does without"));

  flags = Flags("s1");
  std::ofstream(absl::StrCat(dir_, "/file")) << "x";
  flags[2] = absl::StrCat("--data-dir=", dir_, "/file");
  EXPECT_THAT(RunToFailure(flags), HasSubstr(absl::StrCat(dir_, "/file")));

  std::vector<std::string> shared = Flags("s1");
  shared[2] = absl::StrCat("--data-dir=", dir_);
  EXPECT_THAT(RunToFailure(shared), HasSubstr("but no IDENTITY: it belongs to something else"));

  flags = Flags("s1");
  flags.push_back("--host-byte=1GiB");
  EXPECT_THAT(RunToFailure(flags, 2), HasSubstr("host-bytes"));

  EXPECT_THAT(RunToFailure({"--name=s1"}, 2), HasSubstr("--coordinator"));
}

TEST_F(ServerProcessTest, SigtermEndsTheWaitForACoordinator) {
  server_->Shutdown(std::chrono::system_clock::now());
  const Process process = Start(Flags("s1"));
  AwaitText(process.err, "trying again");
  kill(process.pid, SIGTERM);
  EXPECT_EQ(Wait(process), 0) << Read(process.err);
  EXPECT_EQ(Read(process.out), "");
}

}  // namespace server_process_test
}  // namespace hotbed
