// All cases on a GPU. hotbed-gpu-test [--device cuda|host] [--number N] [--seed S] [--seeds N]
// [--case NAME]. Exit status 77: there is no GPU here.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/host_device.h"
#include "tests/device/case.h"

namespace hotbed {
namespace device {
namespace {

struct Arguments {
  std::string device = "cuda";
  int number = 0;
  uint64_t seed = 1;
  uint64_t seeds = 3;
  std::string only;  // empty: all
};

bool Read(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; i += 2) {
    const char* const name = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value == nullptr) return false;
    if (std::strcmp(name, "--device") == 0) {
      arguments->device = value;
    } else if (std::strcmp(name, "--number") == 0) {
      arguments->number = std::atoi(value);
    } else if (std::strcmp(name, "--seed") == 0) {
      arguments->seed = std::strtoull(value, nullptr, 0);
    } else if (std::strcmp(name, "--seeds") == 0) {
      arguments->seeds = std::strtoull(value, nullptr, 0);
    } else if (std::strcmp(name, "--case") == 0) {
      arguments->only = value;
    } else {
      return false;
    }
  }
  return arguments->device == "cuda" || arguments->device == "host";
}

int RunCases(const Arguments& arguments, Device* device) {
  int failed = 0, ran = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.seeds; ++seed) {
    for (const Case& test : AllCases()) {
      if (!arguments.only.empty() && arguments.only != test.name) continue;
      Findings findings;
      test.run(device, seed, &findings);
      const bool passed = findings.count() == 0;
      ++ran;
      failed += !passed;
      std::printf("%-12s seed %llu: %s\n", test.name, static_cast<unsigned long long>(seed),
                  passed ? "passed" : "FAILED");
      if (!passed) {
        std::printf("%s  replay: hotbed-gpu-test --device %s --case %s --seed %llu --seeds 1\n",
                    findings.text().c_str(), arguments.device.c_str(), test.name,
                    static_cast<unsigned long long>(seed));
      }
      std::fflush(stdout);
    }
  }
  std::printf("%d cases on %s, %d failed\n", ran, device->Describe().c_str(), failed);
  return failed == 0 && ran > 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Read(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "hotbed-gpu-test [--device cuda|host] [--number N] [--seed S] [--seeds N] "
                 "[--case NAME]\n");
    return 2;
  }
  std::unique_ptr<Device> device = std::make_unique<HostDevice>();
  if (arguments.device == "cuda") {
    const Status status = OpenCudaDevice(arguments.number, &device);
    if (!status.ok()) {
      std::fprintf(stderr, "no GPU to test on: %s\n", status.message.c_str());
      return 77;
    }
  }
  return RunCases(arguments, device.get());
}

}  // namespace
}  // namespace device
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::device::Main(argc, argv); }
