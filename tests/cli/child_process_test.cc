#include "cli/cluster/child_process.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace child_process_test {

std::string Log(const char* name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/child_process_", name, ".log");
  std::filesystem::remove(path);
  return path;
}

TEST(ChildProcess, ItsWordsAndExitCodeAreKept) {
  const std::string log = Log("words");
  auto child = ChildProcess::Spawn({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, log);
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->WaitFor(absl::Seconds(20)));
  EXPECT_EQ((*child)->exit_code(), 3);
  EXPECT_EQ((*child)->exit_text(), "exit code 3");
  EXPECT_EQ(LastLines(log, 5), "out\nerr");
  EXPECT_EQ(LastLines(log, 1), "err");
}

TEST(ChildProcess, StandardOutputMayGoElsewhere) {
  const std::string log = Log("split"), out = Log("split_out");
  auto child = ChildProcess::Spawn({"/bin/sh", "-c", "echo out; echo err >&2"}, log, out);
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->WaitFor(absl::Seconds(20)));
  EXPECT_EQ(LastLines(log, 5), "err");
  EXPECT_EQ(LastLines(out, 5), "out");
}

TEST(ChildProcess, ASignalRightAfterTheStartEndsItWhateverItsParentDoesWithIt) {
  auto* const before = signal(SIGTERM, [](int) {});
  for (int i = 0; i < 20; ++i) {
    auto child = ChildProcess::Spawn({"/bin/sleep", "1000"}, Log("at_once"));
    ASSERT_TRUE(child.ok()) << child.status();
    (*child)->Signal(SIGTERM);
    EXPECT_TRUE((*child)->WaitFor(absl::Seconds(20))) << i;
  }
  signal(SIGTERM, before);
}

TEST(ChildProcess, SignalsEndItAndAreTold) {
  auto child = ChildProcess::Spawn({"/bin/sleep", "1000"}, Log("signal"));
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_TRUE((*child)->Running());
  EXPECT_FALSE((*child)->WaitFor(absl::Milliseconds(20)));
  (*child)->Signal(SIGKILL);
  ASSERT_TRUE((*child)->WaitFor(absl::Seconds(20)));
  EXPECT_EQ((*child)->exit_code(), -1);
  EXPECT_THAT((*child)->exit_text(), ::testing::HasSubstr("signal 9"));
}

TEST(ChildProcess, IsKilledWithItsObject) {
  pid_t pid = 0;
  {
    auto child = ChildProcess::Spawn({"/bin/sleep", "1000"}, Log("scope"));
    ASSERT_TRUE(child.ok()) << child.status();
    pid = (*child)->pid();
  }
  EXPECT_EQ(kill(pid, 0), -1);  // reaped: no such process
}

TEST(ChildProcess, MissingProgramsAndLogsAreNamed) {
  auto program = ChildProcess::Spawn({"/nowhere/hotbed-server"}, Log("missing"));
  EXPECT_EQ(program.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(program.status().message()),
              ::testing::HasSubstr("/nowhere/hotbed-server"));
  auto log = ChildProcess::Spawn({"/bin/true"}, "/nowhere/x.log");
  EXPECT_EQ(log.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(log.status().message()), ::testing::HasSubstr("/nowhere/x.log"));
}

}  // namespace child_process_test
}  // namespace hotbed
