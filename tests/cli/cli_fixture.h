// The command line over a fake coordinator: its answer to arguments.
#ifndef HOTBED_TESTS_CLI_CLI_FIXTURE_H_
#define HOTBED_TESTS_CLI_CLI_FIXTURE_H_

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "cli/run_cli.h"
#include "nlohmann/json.hpp"
#include "tests/cli/fake_coordinator.h"

namespace hotbed {

struct Answer {
  int code = 0;
  std::string out;
  std::string err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline Answer Ask(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  Answer answer;
  answer.code = RunCli(args, &out, &err);
  answer.out = out.str();
  answer.err = err.str();
  return answer;
}

class RunCliTest : public ::testing::Test {
 protected:
  Answer RunAt(std::vector<std::string> args) {
    args.push_back("--coordinator=" + fake_.address());
    return Ask(args);
  }
  FakeCoordinator fake_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_CLI_CLI_FIXTURE_H_
