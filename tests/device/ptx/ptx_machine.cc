#include "tests/device/ptx/ptx_machine.h"

#include <cstring>
#include <string>

#include "row_math/position.h"

namespace hotbed {
namespace device {

bool PtxMachine::Prepare(const PtxKernel& kernel, const PtxGrid& grid,
                         const std::vector<PtxArgument>& arguments, PtxLaunch* launch) const {
  launch->kernel = &kernel;
  launch->memory = &memory_;
  launch->arrays = grid.arrays;
  launch->blocks = grid.blocks;
  launch->block_threads = grid.block_threads;
  launch->params.resize(kernel.param_bytes);
  launch->steps_left = options_.steps_max;
  const uint32_t threads = grid.block_threads;
  if (threads == 0 || threads % kWarpLanes != 0 ||
      (kernel.threads_max != 0 && threads > kernel.threads_max)) {
    launch->error = kernel.full_name + ": blocks of " + std::to_string(threads) +
                    " threads; allowed are multiples of 32 up to " +
                    std::to_string(kernel.threads_max);
    return false;
  }
  if (arguments.size() != kernel.param_offsets.size()) {
    launch->error = kernel.full_name + ": " + std::to_string(arguments.size()) + " arguments for " +
                    std::to_string(kernel.param_offsets.size()) + " parameters";
    return false;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t at = kernel.param_offsets[i];
    const size_t end = i + 1 < arguments.size() ? kernel.param_offsets[i + 1] : kernel.param_bytes;
    if (arguments[i].size > end - at || arguments[i].size + 8 <= end - at) {
      launch->error = kernel.full_name + ": argument " + std::to_string(i) + " has " +
                      std::to_string(arguments[i].size) + " bytes, its parameter " +
                      std::to_string(end - at);
      return false;
    }
    std::memcpy(&launch->params[at], arguments[i].bytes, arguments[i].size);
  }
  return true;
}

PtxWarp* PtxMachine::WarpOf(const PtxKernel& kernel, uint32_t place) {
  std::vector<std::unique_ptr<PtxWarp>>& warps = warps_[&kernel];
  while (warps.size() <= place) warps.push_back(std::make_unique<PtxWarp>(kernel));
  return warps[place].get();
}

void PtxMachine::RunInTurn(PtxLaunch* launch, uint32_t warps) {
  PtxWarp* const warp = WarpOf(*launch->kernel, 0);
  for (uint32_t number = 0; number < warps && launch->error.empty(); ++number) {
    warp->Begin(launch, number);
    while (warp->Run(~0ull)) {
    }
  }
}

// A few at once, begun in a random order, each for a while.
void PtxMachine::RunMixed(PtxLaunch* launch, uint32_t warps) {
  std::vector<uint32_t> waiting(warps);
  for (uint32_t i = 0; i < warps; ++i) waiting[i] = i;
  std::vector<PtxWarp*> idle, running;
  for (uint32_t i = 0; i < kWarpsAtOnce; ++i) idle.push_back(WarpOf(*launch->kernel, i));
  while (launch->error.empty() && (!waiting.empty() || !running.empty())) {
    launch->random = Mix64(launch->random + 1);
    const uint64_t r = launch->random >> 8;
    if (!waiting.empty() && !idle.empty()) {
      std::swap(waiting[r % waiting.size()], waiting.back());
      idle.back()->Begin(launch, waiting.back());
      running.push_back(idle.back());
      idle.pop_back();
      waiting.pop_back();
      continue;
    }
    const size_t turn = r % running.size();
    if (running[turn]->Run(1 + (r >> 16) % 200)) continue;
    idle.push_back(running[turn]);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(turn));
  }
}

bool PtxMachine::Run(const PtxKernel& kernel, const PtxGrid& grid,
                     const std::vector<PtxArgument>& arguments,
                     const std::vector<AllowedReads>& allowed, std::string* error) {
  PtxLaunch launch;
  if (Prepare(kernel, grid, arguments, &launch)) {
    if (options_.check_races) {
      launch.races = &races_;
      races_.BeginLaunch(allowed);
    }
    if (options_.profile) {
      launch.profile = &profile_;
      profile_.BeginLaunch(kernel, grid.label, grid.rows);
    }
    ++launches_;
    const uint32_t warps = grid.blocks * (grid.block_threads / kWarpLanes);
    if (options_.order_seed == 0) {
      RunInTurn(&launch, warps);
    } else {
      launch.random = Mix64(options_.order_seed + launches_) | 1;
      RunMixed(&launch, warps);
    }
  }
  *error = launch.error;
  if (launch.races != nullptr && error->empty()) {
    for (const std::string& race : races_.found()) {
      *error += (error->empty() ? kernel.full_name + ": " : "\n  ") + race;
    }
  }
  return error->empty();
}

}  // namespace device
}  // namespace hotbed
