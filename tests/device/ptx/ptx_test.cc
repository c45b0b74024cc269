// All cases of tests/device on interpreted PTX: the compiled kernels, without a GPU.
//   hotbed-ptx-test --ptx FILE [--ptx FILE ...] [--seed S] [--seeds N] [--case NAME]
//                   [--order-seed N] [--profile] [--registers KERNEL=N ...]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/device/case.h"
#include "tests/device/ptx/profile_case.h"
#include "tests/device/ptx/ptx_device.h"

namespace hotbed {
namespace device {
namespace {

constexpr char kUsage[] =
    "hotbed-ptx-test --ptx FILE [--ptx FILE ...] [--seed S] [--seeds N] [--case NAME]\n"
    "                [--order-seed N] [--profile] [--registers KERNEL=N ...]\n"
    "--order-seed  lanes and warps in a random order; 0: in step, the default\n"
    "--profile     what a model says of each kernel's cost: of many_rows, or of the case named\n"
    "--registers   of a thread, by ptxas -v, of kernels whose name has KERNEL in it; else 64\n";

struct Arguments {
  std::vector<std::string> files;
  uint64_t seed = 1;
  uint64_t seeds = 1;
  std::string only;  // empty: all
  PtxMachineOptions machine;
  std::map<std::string, uint32_t> registers;
};

bool ReadOne(const std::string& name, const char* value, Arguments* arguments) {
  if (name == "--ptx") {
    arguments->files.push_back(value);
  } else if (name == "--seed") {
    arguments->seed = std::strtoull(value, nullptr, 0);
  } else if (name == "--seeds") {
    arguments->seeds = std::strtoull(value, nullptr, 0);
  } else if (name == "--case") {
    arguments->only = value;
  } else if (name == "--order-seed") {
    arguments->machine.order_seed = std::strtoull(value, nullptr, 0);
  } else if (name == "--registers" && std::strchr(value, '=') != nullptr) {
    const char* const equals = std::strchr(value, '=');
    arguments->registers[std::string(value, equals)] =
        static_cast<uint32_t>(std::strtoul(equals + 1, nullptr, 10));
  } else {
    return false;
  }
  return true;
}

bool ReadAll(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--profile") == 0) {
      arguments->machine.profile = true;
    } else if (i + 1 >= argc || !ReadOne(argv[i], argv[i + 1], arguments)) {
      return false;
    } else {
      ++i;
    }
  }
  if (arguments->machine.profile && arguments->only.empty()) arguments->only = ProfileCase().name;
  return !arguments->files.empty();
}

bool Load(const std::vector<std::string>& files, PtxModule* module) {
  for (const std::string& file : files) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    std::string error;
    if (!in.good()) {
      error = file + ": cannot be read; give a file that nvcc -ptx has written";
    } else {
      module->Parse(file, text.str(), &error);
    }
    if (error.empty()) continue;
    std::fprintf(stderr, "%s\n", error.c_str());
    return false;
  }
  return true;
}

// A device each, as a failure is for good.
bool RunCase(const Arguments& arguments, const PtxModule& module, const Case& test, uint64_t seed,
             std::string* profile) {
  PtxDevice device(module, arguments.machine);
  Findings findings;
  test.run(&device, seed, &findings);
  const bool passed = findings.count() == 0;
  std::printf("%-12s seed %llu: %s\n", test.name, static_cast<unsigned long long>(seed),
              passed ? "passed" : "FAILED");
  if (!passed) {
    std::printf("%s  replay: hotbed-ptx-test --case %s --seed %llu --order-seed %llu\n",
                findings.text().c_str(), test.name, static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(arguments.machine.order_seed));
  }
  std::fflush(stdout);
  *profile = device.profile().Report(arguments.registers);
  return passed;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!ReadAll(argc, argv, &arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  PtxModule module;
  if (!Load(arguments.files, &module)) return 2;
  std::vector<Case> cases = AllCases();
  if (arguments.only == ProfileCase().name) cases.push_back(ProfileCase());
  int failed = 0, ran = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.seeds; ++seed) {
    for (const Case& test : cases) {
      if (!arguments.only.empty() && arguments.only != test.name) continue;
      std::string profile;
      failed += !RunCase(arguments, module, test, seed, &profile);
      ++ran;
      if (arguments.machine.profile) std::printf("%s", profile.c_str());
    }
  }
  std::printf("%d cases on interpreted PTX, %d failed\n", ran, failed);
  return failed == 0 && ran > 0 ? 0 : 1;
}

}  // namespace
}  // namespace device
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::device::Main(argc, argv); }
