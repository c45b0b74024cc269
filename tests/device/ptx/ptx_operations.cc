#include "tests/device/ptx/ptx_operations.h"

namespace hotbed {
namespace device {
namespace {

OperationTable AllOperations() {
  OperationTable table;
  AddIntegerOperations(&table);
  AddBitOperations(&table);
  AddFloatOperations(&table);
  AddConversions(&table);
  AddMemoryOperations(&table);
  AddSyncOperations(&table);
  for (const char* branch : {"bra", "bra.uni"}) {
    table[branch] = {OperationKind::kBranch, "l", nullptr};
  }
  for (const char* end : {"ret", "exit"}) table[end] = {OperationKind::kReturn, "", nullptr};
  return table;
}

}  // namespace

const Operation* FindOperation(const std::string& opcode) {
  static const OperationTable table = AllOperations();
  const auto found = table.find(opcode);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace device
}  // namespace hotbed
