// All cases on a GPU. hotbed-gpu-test [--device cuda|host] [--number N] [--seed S] [--seeds N]
// [--case NAME]. --case lost_device is not one of all: it ends the GPU's use by this process, by an
// access outside of its memory. Exit status 77: there is no GPU here.
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

constexpr char kLostDevice[] = "lost_device";

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

// Reads ids at an address that is nobody's: the work fails, and with it all later calls.
void LoseDevice(Device* device, Findings* findings) {
  uint8_t* memory = nullptr;
  if (!findings->Ok(device->Allocate(1 << 20, &memory)) || !findings->Ok(device->Wait())) return;
  ReadWork work;
  work.segments = {reinterpret_cast<const Segment*>(memory), 1, 32};
  work.tables = reinterpret_cast<const Table*>(memory);
  work.ids = reinterpret_cast<const uint64_t*>(uintptr_t{1} << 20);
  work.numbers = reinterpret_cast<uint32_t*>(memory);
  device->Run(work);
  const Status failed = device->Wait();
  findings->Check(failed.code == Code::kFailed,
                  "an illegal address is no failure: ", failed.message);
  std::printf("  %s\n", failed.message.c_str());
  uint8_t byte = 7;
  device->CopyOut(&byte, memory, 1);
  findings->Check(device->Wait().message == failed.message, "a later call has another error");
  findings->Check(byte == 7, "a copy after the failure has written");
  uint8_t* more = nullptr;
  findings->Check(device->Allocate(16, &more).code == Code::kFailed, "memory after the failure");
  device->Free(memory);
}

int RunLostDevice(Device* device) {
  Findings findings;
  LoseDevice(device, &findings);
  std::printf("lost_device: %s\n%s", findings.count() == 0 ? "passed" : "FAILED",
              findings.text().c_str());
  return findings.count() == 0 ? 0 : 1;
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
  if (arguments.only == kLostDevice && arguments.device == "cuda")
    return RunLostDevice(device.get());
  return RunCases(arguments, device.get());
}

}  // namespace
}  // namespace device
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::device::Main(argc, argv); }
