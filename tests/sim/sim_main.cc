// Runs seeds of the simulated cluster: ./dev sim.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/protocol/core_mutant.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

struct Flags {
  uint64_t first = 1;
  uint64_t seeds = 10'000;
  double minutes = 0;  // not 0: instead of a number of seeds
  int threads = 0;     // 0: one a processor
  std::string mutant;
  const Weather* weather = &Weathers().front();
  bool trace = false;
  bool keep_going = false;
};

constexpr char kUsage[] =
    "Usage: ./dev sim [--seeds N] [--first S] [--minutes M] [--mutant NAME] [--weather NAME]\n"
    "                 [--threads N] [--trace] [--keep-going] [--list-mutants] [--list-weathers]\n"
    "Runs N seeds (10,000 by default) of the simulated cluster from S (1) on; what one seed does "
    "is\n"
    "decided by it alone. --trace prints each step of them. --mutant runs with a planted bug,\n"
    "--weather with much of what is rare in the mixed one.\n";

bool TakeNumber(const char* text, double* out) {
  char* end = nullptr;
  *out = std::strtod(text, &end);
  return end != text && *end == '\0' && *out >= 0;
}

// False: the reason was printed.
bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    double number = 0;
    if (flag == "--trace") {
      flags->trace = true;
    } else if (flag == "--keep-going") {
      flags->keep_going = true;
    } else if (flag == "--list-mutants") {
      for (const PlantedBug& bug : PlantedBugs()) std::printf("%s\n", bug.name);
      std::exit(0);
    } else if (flag == "--list-weathers") {
      for (const Weather& weather : Weathers()) std::printf("%s\n", weather.name.c_str());
      std::exit(0);
    } else if (flag == "--weather" && i + 1 < argc) {
      flags->weather = FindWeather(argv[++i]);
      if (flags->weather == nullptr) {
        std::fprintf(stderr, "sim: no weather %s; --list-weathers names them\n", argv[i]);
        return false;
      }
    } else if (flag == "--mutant" && i + 1 < argc) {
      flags->mutant = argv[++i];
    } else if (i + 1 < argc && TakeNumber(argv[i + 1], &number)) {
      ++i;
      if (flag == "--seeds") {
        flags->seeds = static_cast<uint64_t>(number);
      } else if (flag == "--first") {
        flags->first = static_cast<uint64_t>(number);
      } else if (flag == "--minutes") {
        flags->minutes = number;
      } else if (flag == "--threads") {
        flags->threads = static_cast<int>(number);
      } else {
        std::fprintf(stderr, "sim: unknown flag %s\n%s", flag.c_str(), kUsage);
        return false;
      }
    } else {
      std::fprintf(stderr, "sim: unknown flag or bad value: %s\n%s", flag.c_str(), kUsage);
      return false;
    }
  }
  if (flags->mutant.empty()) return true;
  if (!Plant(flags->mutant)) {
    std::fprintf(stderr, "sim: no mutant %s; --list-mutants names them\n", flags->mutant.c_str());
    return false;
  }
  return true;
}

class Run {
 public:
  explicit Run(const Flags& flags) : flags_(flags), next_(flags.first) {}

  int Main() {
    const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
    const bool one = flags_.trace || !flags_.mutant.empty();
    const int count = one ? 1 : flags_.threads > 0 ? flags_.threads : static_cast<int>(processors);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    const absl::MutexLock lock(&mu_);
    const double seconds = Seconds();
    std::printf("%lu seeds, %lu failed, %.0f seeds/s on %d threads\n%s\n", done_, failed_,
                static_cast<double>(done_) / seconds, count, total_.Text().c_str());
    if (done_ > 0) {
      const auto each = [&](uint64_t n) {
        return static_cast<double>(n) / static_cast<double>(done_);
      };
      std::printf("a seed: %.0f acknowledged, %.1f epochs, %.1f moves, %.1f faults, %.0f events\n",
                  each(total_.acknowledged), each(total_.epochs), each(total_.moves),
                  each(total_.faults), each(total_.events));
    }
    return failed_ == 0 ? 0 : 1;
  }

 private:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  bool Over(uint64_t seed) const {
    if (stop_) return true;
    if (flags_.minutes > 0) return Seconds() >= flags_.minutes * 60;
    return seed >= flags_.first + flags_.seeds;
  }

  void Work() {
    for (;;) {
      const uint64_t seed = next_++;
      if (Over(seed)) return;
      ClusterSimulation simulation(seed, *flags_.weather);
      if (flags_.trace) simulation.TraceTo(stdout);
      const bool apart = !flags_.mutant.empty() && !flags_.trace;
      const std::string violation = apart ? RunApart(seed, *flags_.weather) : simulation.Run();
      const absl::MutexLock lock(&mu_);
      ++done_;
      total_.Add(simulation.stats());
      if (!violation.empty()) Report(seed, violation);
      if (Seconds() >= said_ + 10) {
        said_ = Seconds();
        std::printf("%lu seeds, %lu failed, %.0f seeds/s\n", done_, failed_,
                    static_cast<double>(done_) / said_);
        std::fflush(stdout);
      }
    }
  }

  void Report(uint64_t seed, const std::string& violation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++failed_;
    if (!flags_.keep_going) stop_ = true;
    const bool mixed = flags_.weather == &Weathers().front();
    std::printf("seed %lu: %s\n  replay: ./dev sim --first %lu --seeds 1 --trace%s%s%s%s\n", seed,
                violation.c_str(), seed, flags_.mutant.empty() ? "" : " --mutant ",
                flags_.mutant.c_str(), mixed ? "" : " --weather ",
                mixed ? "" : flags_.weather->name.c_str());
    std::fflush(stdout);
  }

  const Flags flags_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next_;
  std::atomic<bool> stop_{false};
  absl::Mutex mu_;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t failed_ ABSL_GUARDED_BY(mu_) = 0;
  double said_ ABSL_GUARDED_BY(mu_) = 0;
  ClusterStats total_ ABSL_GUARDED_BY(mu_);
};

}  // namespace
}  // namespace hotbed::sim

int main(int argc, char** argv) {
  hotbed::sim::Flags flags;
  if (!hotbed::sim::Parse(argc, argv, &flags)) return 2;
  return hotbed::sim::Run(flags).Main();
}
