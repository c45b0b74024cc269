// PTX text, as nvcc -ptx writes it, decoded: kernels, their registers and parameters, and one
// PtxInstruction a line. What is not known is an error that names the line and the opcode.
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_MODULE_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_MODULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/device/ptx/ptx_operations.h"

namespace hotbed {
namespace device {

// Addresses of local memory as generic ones: beyond all that a process has.
constexpr uint64_t kLocalWindow = 0xfff0000000000000ull;

// A register or a constant, which is a register that nobody writes.
struct PtxOperand {
  uint32_t word = 0;   // where its lanes begin in the register file, in words of 4 bytes
  uint32_t index = 0;  // its number in the kernel
  char kind = 0;       // p: one word, a bit a lane; w: a word a lane; d: two words a lane
};

struct PtxInstruction {
  const Operation* operation = nullptr;
  uint32_t line = 0;
  uint32_t target = 0;  // of a branch: an instruction's number
  int64_t offset = 0;   // in memory, behind the address, which is from[0]
  bool guarded = false;
  bool negated = false;
  PtxOperand guard;
  uint8_t to_count = 0;
  uint8_t from_count = 0;
  PtxOperand to[4];
  PtxOperand from[5];
};

struct PtxConstant {
  PtxOperand at;
  uint64_t bits;
};

// Registers that hold what a thread is; written before a warp begins.
enum PtxSpecial : uint32_t { kTid, kNtid, kCtaid, kNctaid, kLane, kSpecials };

struct PtxKernel {
  std::string name;       // mangled
  std::string full_name;  // as C++ writes it
  uint32_t param_bytes = 0;
  std::vector<uint32_t> param_offsets;
  uint32_t local_bytes = 0;
  uint32_t threads_max = 0;  // of a block: .maxntid; 0 where it says nothing
  uint32_t words = 0;        // of the register file
  uint32_t registers = 0;
  PtxOperand special[kSpecials];
  std::vector<PtxConstant> constants;
  std::vector<PtxInstruction> code;
  std::vector<std::string> texts;  // of each instruction
};

struct PtxModule {
  std::vector<PtxKernel> kernels;

  // Adds the kernels of a file. False with a text that names `file` and the line.
  bool Parse(const std::string& file, const std::string& text, std::string* error);
  // By a part of the full name; null where none or several have it.
  const PtxKernel* Find(const std::string& part) const;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_MODULE_H_
