#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace hotbed {
namespace config_test {

using testing::ElementsAre;
using testing::HasSubstr;

struct Options {
  std::string listen = "127.0.0.1:0";
  std::string device = "auto";
  bool verbose = false;
  std::string peer = "127.0.0.1:7400";
  int64_t threads = 4;
  double fraction = 0.1;
  uint64_t host_bytes = 64 << 20;
  int64_t drain_ms = 5000;
};

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() : schema_("hotbed-test", "Tests.") { Declare(&schema_, &options_); }
  ~ConfigTest() override { std::remove(path_.c_str()); }

  static void Declare(ConfigSchema* schema, Options* options) {
    schema->Add("listen", &options->listen, "host:port", "Where to listen.");
    schema->AddHostPort("peer", &options->peer, "Who to ask.", 1);
    schema->AddChoice("device", &options->device, {"auto", "cpu", "cuda"}, "Where rows live.");
    schema->AddBool("verbose", &options->verbose, "Log more.");
    schema->AddInt("threads", &options->threads, "Threads.", {.min = 1, .max = 64});
    schema->AddDouble("fraction", &options->fraction, "A part.", {.min = 0, .max = 1});
    schema->AddBytes("host-bytes", &options->host_bytes, "Memory.", {.min = 1 << 20});
    schema->AddMillis("drain-ms", &options->drain_ms, "Longest stop.", {.min = 1});
  }

  void WriteFile(const std::string& text) { std::ofstream(path_) << text; }
  std::string ErrorOf(const std::vector<std::string>& args) {
    const absl::Status status = schema_.Resolve(args, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  std::string path_ = testing::TempDir() + "hotbed_config_" + std::to_string(getpid()) + ".yaml";
  Options options_;
  ConfigSchema schema_;
};

TEST_F(ConfigTest, DefaultsStayWithoutSources) {
  ASSERT_TRUE(schema_.Resolve({}, {{"PATH", "/bin"}}).ok());
  EXPECT_EQ(options_.listen, "127.0.0.1:0");
  EXPECT_THAT(schema_.Print(), HasSubstr("host-bytes: 64MiB  # default"));
  EXPECT_TRUE(schema_.warnings().empty());
}

TEST_F(ConfigTest, FlagGoesBeforeEnvironmentBeforeFileBeforeDefault) {
  WriteFile("threads: 2\nhost-bytes: 2MiB\ndrain-ms: 2s\n");
  const absl::Status status = schema_.Resolve(
      {"--config", path_, "--threads=8"}, {{"HOTBED_THREADS", "6"}, {"HOTBED_HOST_BYTES", "6MiB"}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(options_.threads, 8);
  EXPECT_EQ(options_.host_bytes, 6u << 20);
  EXPECT_EQ(options_.drain_ms, 2000);
  EXPECT_EQ(options_.fraction, 0.1);
  const std::string printed = schema_.Print();
  EXPECT_THAT(printed, HasSubstr("threads: 8  # flag --threads"));
  EXPECT_THAT(printed, HasSubstr("host-bytes: 6MiB  # environment HOTBED_HOST_BYTES"));
  EXPECT_THAT(printed, HasSubstr("drain-ms: 2s  # " + path_ + " line 3"));
}

TEST_F(ConfigTest, AllWaysToWriteAFlag) {
  ASSERT_TRUE(schema_.Resolve({"--verbose", "--listen", "a=b:1", "--device=cpu"}, {}).ok());
  EXPECT_TRUE(options_.verbose);
  EXPECT_EQ(options_.listen, "a=b:1");
  EXPECT_EQ(options_.device, "cpu");
  ASSERT_TRUE(schema_.Resolve({"--no-verbose"}, {}).ok());
  EXPECT_FALSE(options_.verbose);
  ASSERT_TRUE(schema_.Resolve({"--verbose=true"}, {}).ok());
  EXPECT_TRUE(options_.verbose);
}

TEST_F(ConfigTest, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(ErrorOf({"--host-byte=1"}),
              HasSubstr("unknown flag --host-byte; did you mean host-bytes?"));
  EXPECT_THAT(ErrorOf({"--frobnicate"}), HasSubstr("unknown flag --frobnicate ("));
  WriteFile("\nlisten: a\nthread: 3\n");
  EXPECT_THAT(ErrorOf({"--config=" + path_}),
              HasSubstr("unknown key thread in " + path_ + " line 3; did you mean threads?"));
  ASSERT_TRUE(schema_.Resolve({}, {{"HOTBED_HOST_BYTE", "1"}}).ok());
  EXPECT_THAT(schema_.warnings(), ElementsAre(HasSubstr("did you mean HOTBED_HOST_BYTES?")));
}

TEST_F(ConfigTest, BadValuesNameSourceValueAndLimit) {
  EXPECT_THAT(ErrorOf({"--threads=0"}),
              HasSubstr("flag --threads: threads = \"0\" is out of range, allowed: 1 to 64"));
  EXPECT_THAT(ErrorOf({"--threads=x"}), HasSubstr("expected a whole number"));
  EXPECT_THAT(ErrorOf({"--host-bytes=1KiB"}), HasSubstr("at least 1 MiB"));
  EXPECT_THAT(ErrorOf({"--host-bytes=1MB"}), HasSubstr("GiB"));
  EXPECT_THAT(ErrorOf({"--drain-ms=0"}), HasSubstr("at least 1ms"));
  EXPECT_THAT(ErrorOf({"--drain-ms=5x"}), HasSubstr("drain-ms = \"5x\" is not valid; write"));
  EXPECT_THAT(ErrorOf({"--host-bytes=5"}), HasSubstr("host-bytes = \"5\" is out of range"));
  EXPECT_THAT(ErrorOf({"--peer=127.0.0.1:65536"}),
              HasSubstr("flag --peer: peer = \"127.0.0.1:65536\" is not valid, expected HOST:PORT "
                        "with a port of 1 to 65535"));
  EXPECT_THAT(ErrorOf({"--peer=here"}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(ErrorOf({"--fraction=nan"}), HasSubstr("expected a number"));
  EXPECT_THAT(ErrorOf({"--fraction=1.5"}), HasSubstr("0 to 1"));
  EXPECT_THAT(ErrorOf({"--device=tpu"}), HasSubstr("one of auto, cpu, cuda"));
  EXPECT_THAT(ErrorOf({"--verbose=yes"}), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf({"--threads"}), HasSubstr("flag --threads has no value"));
  EXPECT_THAT(ErrorOf({"serve"}), HasSubstr("unexpected argument \"serve\""));
  WriteFile("threads: many\n");
  EXPECT_THAT(ErrorOf({"--config=" + path_}), HasSubstr(path_ + " line 1: threads = \"many\""));
}

TEST_F(ConfigTest, AWeakerSourceIsCheckedEvenWhereItIsOverridden) {
  EXPECT_FALSE(schema_.Resolve({"--threads=3"}, {{"HOTBED_THREADS", "many"}}).ok());
}

TEST_F(ConfigTest, TheFileMayBeNamedByTheEnvironmentAndMustExist) {
  WriteFile("threads: 7\n");
  ASSERT_TRUE(schema_.Resolve({}, {{"HOTBED_CONFIG", path_}}).ok());
  EXPECT_EQ(options_.threads, 7);
  const absl::Status status = schema_.Resolve({"--config=/no/such/file"}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/file"));
}

TEST_F(ConfigTest, WhatItPrintsItReadsBack) {
  ASSERT_TRUE(schema_
                  .Resolve({"--listen=odd \"name\": #1", "--fraction=0.30000000000000004",
                            "--host-bytes=12345678", "--drain-ms=61s", "--verbose"},
                           {})
                  .ok());
  WriteFile(schema_.Print());
  Options back;
  ConfigSchema second("hotbed-test", "Tests.");
  Declare(&second, &back);
  const absl::Status status = second.Resolve({"--config=" + path_}, {});
  ASSERT_TRUE(status.ok()) << status << schema_.Print();
  EXPECT_EQ(back.listen, options_.listen);
  EXPECT_EQ(back.device, options_.device);
  EXPECT_EQ(back.fraction, 0.30000000000000004);
  EXPECT_EQ(back.host_bytes, 12345678u);
  EXPECT_EQ(back.drain_ms, 61000);
  EXPECT_TRUE(back.verbose);
}

TEST_F(ConfigTest, RequestsStopBeforeRunning) {
  ASSERT_TRUE(schema_.Resolve({"--help"}, {}).ok());
  EXPECT_EQ(schema_.request(), ConfigSchema::Request::kHelp);
  EXPECT_THAT(schema_.Help(), HasSubstr("--host-bytes=<size>\n      Memory. Default: 64MiB.\n"));
  ASSERT_TRUE(schema_.Resolve({"--print-config", "--threads=5"}, {}).ok());
  EXPECT_EQ(schema_.request(), ConfigSchema::Request::kPrintConfig);
  EXPECT_EQ(options_.threads, 5);
}

TEST_F(ConfigTest, LoadPrintsAndGivesTheExitCode) {
  char program[] = "hotbed-test";
  char bad[] = "--thread=1";
  char help[] = "--help";
  char* arguments[] = {program, bad};
  int exit_code = -1;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(schema_.Load(2, arguments, &exit_code));
  EXPECT_EQ(exit_code, 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("hotbed-test: unknown flag --thread; did you mean threads?"));
  arguments[1] = help;
  testing::internal::CaptureStdout();
  EXPECT_FALSE(schema_.Load(2, arguments, &exit_code));
  EXPECT_EQ(exit_code, 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("hotbed-test: Tests."));
}

TEST_F(ConfigTest, AFlagIsGivenOnce) {
  EXPECT_THAT(ErrorOf({"--threads=2", "--threads=3"}), HasSubstr("flag --threads is given twice"));
  EXPECT_THAT(ErrorOf({"--threads=2", "--threads", "2"}), HasSubstr("--threads is given twice"));
  EXPECT_THAT(ErrorOf({"--verbose", "--no-verbose"}), HasSubstr("--verbose is given twice"));
  EXPECT_THAT(ErrorOf({"--config=a", "--config=b"}), HasSubstr("flag --config is given twice"));
}

TEST_F(ConfigTest, TextHasNoLineBreaksAndErrorsShowNone) {
  EXPECT_THAT(ErrorOf({"--listen=a:1\nb"}),
              HasSubstr("listen = \"a:1\\nb\" is not valid, expected text without line breaks"));
  EXPECT_THAT(ErrorOf({"--thr\x1b[31meads"}), testing::Not(HasSubstr("\x1b")));
  EXPECT_LT(ErrorOf({"--threads=" + std::string(100'000, 'x')}).size(), 1000u);
}

}  // namespace config_test
}  // namespace hotbed
