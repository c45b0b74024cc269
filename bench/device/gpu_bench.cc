// The share that the kernels reach of the roof, a device-to-device memcpy measured in the same run;
// and the cost of a call with rows in two tiers.
//
//   hotbed-gpu-bench [--scale X] [--samples N] [--device cuda|host] [--number N] [--order-seed N]
//                    [--only NAME] [-o table|json]
//
// --scale 1 holds 8 GB of rows, or 55 GB for training steps. --device host runs the emulation at a
// small scale, as a test of the benchmark; with --order-seed its queues run in a random order that
// keeps only the requested dependencies. --only runs one of kMeasures. Bytes are the reads and
// writes that every algorithm needs, without ids and index. Exit status 1: answers with two tiers
// differ from those with one; 77: there is no GPU.
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

struct Measure {
  const char* name;  // of --only
  bool (*run)(const BenchRun&);
};

template <typename F>
bool Done(F measure) {
  measure();
  return true;
}

const Measure kMeasures[] = {
    {"gather",
     [](const BenchRun& run) {
       return Done([&]() { MeasureGather(run, 64), MeasureGather(run, 128); });
     }},
    {"apply",
     [](const BenchRun& run) {
       return Done([&]() {
         MeasureApply(run, OptimizerKind::kRowwiseAdagrad, "row-wise Adagrad");
         MeasureApply(run, OptimizerKind::kAdam, "Adam");
       });
     }},
    {"find", [](const BenchRun& run) { return Done([&]() { MeasureFinds(run); }); }},
    {"insert", [](const BenchRun& run) { return Done([&]() { MeasureInserts(run); }); }},
    {"tables", [](const BenchRun& run) { return Done([&]() { MeasureTableCounts(run); }); }},
    {"served", MeasureHalfServed},
    {"half", MeasureHalfOnDevice},
    {"steps", MeasureTrainingSteps},
};

std::string MeasureNames() {
  std::string names;
  for (const Measure& measure : kMeasures)
    names += std::string(names.empty() ? "" : ", ") + measure.name;
  return names;
}

bool IsMeasure(const std::string& name) {
  for (const Measure& measure : kMeasures) {
    if (name == measure.name) return true;
  }
  return false;
}

// `only`: the name of one measure, or empty for all. The roof is measured in any case.
int RunMeasures(BenchRun run, const std::string& only) {
  MeasureRoof(&run);
  bool agree = true;
  for (const Measure& measure : kMeasures) {
    if (only.empty() || only == measure.name) agree &= measure.run(run);
  }
  run.report->End();
  if (agree) return 0;
  std::fprintf(stderr, "rows in two tiers and all on the device gave different answers\n");
  return 1;
}

int Main(int argc, char** argv) {
  std::string kind = "cuda", output = "table", only;
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
    } else if (name == "--only" && IsMeasure(value)) {
      only = value;
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
                 "[--order-seed N] [--only NAME] [-o table|json]\nNAME: %s\n",
                 MeasureNames().c_str());
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
  return RunMeasures(run, only);
}

}  // namespace
}  // namespace device
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::device::Main(argc, argv); }
