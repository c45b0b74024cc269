// A kernel while it is parsed: names to registers, constants and labels.
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_KERNEL_BUILDER_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_KERNEL_BUILDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/device/ptx/ptx_module.h"

namespace hotbed {
namespace device {

// Every call that may fail returns a text that says what is wrong; an empty one is success.
class PtxKernelBuilder {
 public:
  explicit PtxKernelBuilder(const std::string& name);

  std::string AddParam(const std::string& declaration);
  std::string AddRegisters(const std::string& declaration);
  std::string AddLocal(const std::string& declaration);
  std::string AddLabel(const std::string& name);
  std::string AddInstruction(const std::string& text, uint32_t line);
  void set_threads_max(uint32_t threads) { kernel_.threads_max = threads; }
  // Labels to instructions. Nothing may be added afterwards.
  std::string Finish(PtxKernel* kernel);

 private:
  struct Registers {
    char kind;
    uint32_t count;
    uint32_t word;
    uint32_t index;
  };

  PtxOperand NewRegister(char kind);
  PtxOperand Constant(char kind, uint64_t bits);
  bool FindRegister(const std::string& name, PtxOperand* operand) const;
  std::string ReadValue(const std::string& text, char kind, PtxOperand* operand);
  std::string ReadAddress(const std::string& text, PtxInstruction* to);
  std::string ReadTo(const std::string& text, char kind, PtxInstruction* to);
  std::string ReadFrom(const std::string& text, char kind, PtxInstruction* to);
  std::string ReadOperands(const std::vector<std::string>& operands, const char* shape,
                           PtxInstruction* to);

  PtxKernel kernel_;
  std::unordered_map<std::string, Registers> registers_;
  std::map<std::pair<char, uint64_t>, PtxOperand> constants_;
  std::unordered_map<std::string, uint64_t> symbols_;  // parameters and local arrays: offsets
  std::unordered_map<std::string, uint32_t> labels_;
  std::vector<std::pair<uint32_t, std::string>> jumps_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_KERNEL_BUILDER_H_
