// The share that the kernels reach of the roof, a device-to-device memcpy measured in the same run;
// and the cost of a call with rows in two tiers.
//
//   hotbed-gpu-bench [--scale X] [--samples N] [--device cuda|host] [--number N] [--order-seed N]
//                    [-o table|json]
//
// --scale 1 holds 8 GB of rows, or 55 GB for training steps. --device host runs the emulation at a
// small scale, as a test of the benchmark; with --order-seed its queues run in a random order that
// keeps only the requested dependencies. Bytes are the reads and writes that every algorithm
// needs, without ids and index. Exit status 1: answers with two tiers differ from those with one;
// 77: there is no GPU.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "bench/device/bench_measures.h"
#include "device/cuda/cuda_device.h"
#include "device/host_device.h"

namespace hotbed {
namespace device {
namespace {

int Measure(BenchRun run) {
  MeasureRoof(&run);
  MeasureGather(run, 64);
  MeasureGather(run, 128);
  MeasureApply(run);
  MeasureFinds(run);
  MeasureInserts(run);
  MeasureTableCounts(run);
  const bool served_agree = MeasureHalfServed(run);
  const bool reads_agree = MeasureHalfOnDevice(run);
  const bool steps_agree = MeasureTrainingSteps(run);
  run.report->End();
  if (served_agree && reads_agree && steps_agree) return 0;
  std::fprintf(stderr, "rows in two tiers and all on the device gave different answers\n");
  return 1;
}

int Main(int argc, char** argv) {
  std::string kind = "cuda", output = "table";
  int number = 0;
  HostDeviceOptions emulated;
  emulated.staging_only = true;
  BenchRun run = {nullptr, nullptr, 1.0, 50};
  bool known = argc % 2 == 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--device") {
      kind = value;
    } else if (name == "--number") {
      number = std::atoi(value.c_str());
    } else if (name == "--scale") {
      run.scale = std::atof(value.c_str());
    } else if (name == "--samples") {
      run.samples = std::atoi(value.c_str());
    } else if (name == "--order-seed") {
      emulated.order_seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "-o") {
      output = value;
    } else {
      known = false;
    }
  }
  known = known && (kind == "cuda" || kind == "host") && (output == "table" || output == "json");
  if (!known || run.scale <= 0 || run.samples <= 0) {
    std::fprintf(stderr,
                 "hotbed-gpu-bench [--scale X] [--samples N] [--device cuda|host] [--number N] "
                 "[--order-seed N] [-o table|json]\n");
    return 2;
  }
  std::unique_ptr<Device> device = std::make_unique<HostDevice>(emulated);
  if (kind == "cuda") {
    const Status status = OpenCudaDevice(number, &device);
    if (!status.ok()) {
      std::fprintf(stderr, "no GPU to measure on: %s\n", status.message.c_str());
      return 77;
    }
  }
  char title[160];
  std::snprintf(title, sizeof(title), "%s, scale %g, %d samples", device->Describe().c_str(),
                run.scale, run.samples);
  Report report(output == "json", title);
  run.device = device.get();
  run.report = &report;
  return Measure(run);
}

}  // namespace
}  // namespace device
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::device::Main(argc, argv); }
