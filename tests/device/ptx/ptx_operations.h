// The effect of PTX instructions on the lanes of a warp: one function per opcode with its types.
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_OPERATIONS_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_OPERATIONS_H_

#include <cstdint>
#include <map>
#include <string>

namespace hotbed {
namespace device {

struct PtxWarp;
struct PtxInstruction;

constexpr uint32_t kWarpLanes = 32;

enum class OperationKind : uint8_t {
  kPlain,   // of each lane for itself
  kMemory,  // the same, in memory
  kSync,    // of all lanes that its last operand names, together
  kBranch,
  kReturn,
};

// `lanes`: those that do it. A failure is left in the warp's launch.
using LaneFunction = void (*)(PtxWarp* warp, const PtxInstruction& instruction, uint32_t lanes);

struct Operation {
  OperationKind kind = OperationKind::kPlain;
  // Operands, what is written before '=': p predicate, w up to 32 bits, d 64 bits, V a register of
  // any width or a vector of them, s w or w|p, m memory, l label.
  const char* shape = "";
  LaneFunction run = nullptr;
  bool selects = false;  // reads one of its first two sources, by the third
  bool packs = false;    // puts its two sources of 32 bits together
  bool narrows = false;  // reads the lower half of its source of 64 bits alone
  bool orders = false;   // memory, among the lanes that do it together
  // In memory:
  bool is_store = false;
  uint32_t bytes = 0;  // of one value
};

using OperationTable = std::map<std::string, Operation>;

void AddIntegerOperations(OperationTable* table);
void AddBitOperations(OperationTable* table);
void AddFloatOperations(OperationTable* table);
void AddConversions(OperationTable* table);
void AddMemoryOperations(OperationTable* table);
void AddSyncOperations(OperationTable* table);

// The operation of an opcode as it is written; null: the interpreter lacks it.
const Operation* FindOperation(const std::string& opcode);

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_OPERATIONS_H_
