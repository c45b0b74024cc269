// A warp of the interpreter: its registers, its lanes' places in the code, and what it shares with
// the other warps of its launch.
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_WARP_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_WARP_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/device/ptx/ptx_module.h"
#include "tests/device/ptx/ptx_profile.h"
#include "tests/device/ptx/race_check.h"

namespace hotbed {
namespace device {

// Global memory that kernels may touch: ranges of the process's own, none inside another.
class PtxMemory {
 public:
  // One that begins where another does counts if it is the longer.
  void Add(const void* memory, uint64_t bytes);
  void Remove(const void* memory);
  bool Contains(uint64_t address, uint64_t bytes) const;

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin to size
  mutable uint64_t last_begin_ = 0;
  mutable uint64_t last_bytes_ = 0;
};

struct PtxLaunch {
  const PtxKernel* kernel = nullptr;
  const PtxMemory* memory = nullptr;
  const PtxMemory* arrays = nullptr;  // or null: all of `memory`
  RaceCheck* races = nullptr;         // or null
  PtxProfile* profile = nullptr;      // or null
  std::vector<uint8_t> params;
  uint32_t blocks = 0;
  uint32_t block_threads = 0;
  uint64_t random = 0;  // the state of the random order; 0: smallest address first
  uint64_t steps_left = 0;
  std::string error;  // the first
};

struct PtxWarp {
  explicit PtxWarp(const PtxKernel& of);
  // Makes it warp `number` of the launch, at its first instruction.
  void Begin(PtxLaunch* of, uint32_t number);
  // Goes on for `steps` instructions or to the end. False once nothing is left to do.
  bool Run(uint64_t steps);

  template <typename Bits>
  Bits* Lanes(const PtxOperand& operand) const {
    return reinterpret_cast<Bits*>(words.get() + operand.word);
  }
  uint32_t& Mask(const PtxOperand& predicate) const { return words[predicate.word]; }
  void Fail(const PtxInstruction& at, uint32_t lane, const std::string& what);

  const PtxKernel* kernel = nullptr;
  PtxLaunch* launch = nullptr;
  uint32_t number = 0;

  std::unique_ptr<uint32_t[], void (*)(void*)> words;
  std::vector<uint32_t> defined;  // of each register: lanes that have written it
  // Lanes that have written only its lower half: nvcc copies pairs of which it needs one half.
  std::vector<uint32_t> half_defined;
  std::vector<uint8_t> local;  // of each lane, one after the other
  std::vector<uint8_t> local_defined;
  WarpClocks clocks;

  uint32_t pc[kWarpLanes];
  uint32_t awaited[kWarpLanes];  // of a waiting lane: the mask of its sync
  uint32_t live = 0;
  uint32_t waiting = 0;

  // What the last instruction touched in global memory, for the profile.
  uint32_t touched = 0;
  uint64_t addresses[kWarpLanes];
  WarpProfile timing;

 private:
  struct Group {
    uint32_t pc;
    uint32_t lanes;
    uint32_t limit;  // another lane is there, and goes first or joins
    uint64_t steps;
  };
  uint64_t Random();
  bool ChooseGroup(Group* group);
  void RunGroup(Group* group);
  void Place(uint32_t lanes, uint32_t at);
  uint32_t Guarded(const PtxInstruction& in, uint32_t lanes);
  void Count(const PtxInstruction& in, uint32_t lanes);
  void RunPlain(const PtxInstruction& in, uint32_t lanes);
  void Arrive(const PtxInstruction& in, uint32_t place, uint32_t lanes);
  bool IsComplete(const PtxInstruction& in, uint32_t place, uint32_t lane);
  void FailOfDeadlock();
  std::string Hex(uint32_t lanes) const;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_WARP_H_
