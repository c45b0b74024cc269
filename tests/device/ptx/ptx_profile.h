// A model of what a kernel costs: what a warp issues, the sectors it touches, and when it would be
// done on an in-order multiprocessor. A model, not a measurement: PTX is not what a GPU runs, and
// other warps' use of the same units is not in it.
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_PROFILE_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/device/ptx/ptx_module.h"

namespace hotbed {
namespace device {

// The counts of one warp.
struct WarpProfile {
  uint64_t cycle = 0;                // of the last issue
  std::vector<uint64_t> ready;       // of each register: the cycle in which it may be read
  std::vector<uint64_t> last_lines;  // what the L1 cache is thought to have
  uint32_t next_line = 0;
  uint64_t end = 0;         // the last result
  bool is_at_work = false;  // has touched global memory

  void Begin(uint32_t registers);
};

struct KernelCounts {
  uint64_t launches = 0;
  uint64_t rows = 0;
  uint64_t instructions = 0;  // of warps
  uint64_t lanes = 0;         // active, of all instructions
  uint64_t loads = 0;
  uint64_t stores = 0;
  uint64_t sectors = 0;         // distinct ones of each instruction
  uint64_t sectors_missed = 0;  // those not in a line that the warp had just touched
  uint64_t cycles = 0;          // of all warps that did any
};

class PtxProfile {
 public:
  // `label` goes behind the kernel's name; `rows`: what the launch does, all its units together.
  void BeginLaunch(const PtxKernel& kernel, const std::string& label, uint64_t rows);
  void Issue(const PtxInstruction& at, uint32_t lanes, uint32_t touched, const uint64_t* addresses,
             uint32_t bytes, WarpProfile* warp);
  void EndWarp(const WarpProfile& warp) { now_->cycles += warp.is_at_work ? warp.end : 0; }
  // `registers`: of a thread, by a part of the kernel's name.
  std::string Report(const std::map<std::string, uint32_t>& registers) const;

 private:
  static std::string ReportOf(const std::string& name, const KernelCounts& counts,
                              uint32_t registers);
  uint64_t Touch(bool is_store, uint32_t touched, const uint64_t* addresses, uint32_t bytes,
                 WarpProfile* warp);

  std::map<std::string, KernelCounts> kernels_;
  KernelCounts* now_ = nullptr;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_PROFILE_H_
