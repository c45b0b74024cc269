#include "tests/device/ptx/ptx_kernel_builder.h"

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace hotbed {
namespace device {
namespace {

constexpr char kSpace[] = " \t";

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// At commas that are not inside braces.
std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    depth += (c == '{') - (c == '}');
    if (c == ',' && depth == 0) {
      parts.push_back(Trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  part = Trimmed(part);
  if (!part.empty()) parts.push_back(part);
  return parts;
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Bytes of a type as in .b8, .u32, .f64; 0 for none.
uint32_t BytesOf(const std::string& type) {
  if (type.size() < 3 || std::strchr("busf", type[1]) == nullptr) return 0;
  return static_cast<uint32_t>(std::strtoul(type.c_str() + 2, nullptr, 10)) / 8;
}

// name[count], or a name alone: one.
void ReadArray(const std::string& text, std::string* name, uint32_t* count) {
  const size_t open = text.find('[');
  *name = text.substr(0, open);
  *count = open == std::string::npos
               ? 1
               : static_cast<uint32_t>(std::strtoul(text.c_str() + open + 1, nullptr, 10));
}

// A declaration `.space .align N .type name[count]`.
struct Declared {
  uint32_t align = 1;
  uint32_t bytes = 0;
  std::string name;
};
bool ReadDeclaration(const std::string& text, Declared* declared) {
  const std::vector<std::string> words = Words(text);
  uint32_t element = 0, count = 0;
  for (size_t i = 1; i + 1 < words.size(); ++i) {
    if (words[i] == ".align") {
      declared->align = static_cast<uint32_t>(std::strtoul(words[++i].c_str(), nullptr, 10));
    } else {
      element = BytesOf(words[i]);
    }
  }
  if (words.size() < 3 || element == 0) return false;
  ReadArray(words.back(), &declared->name, &count);
  declared->align = declared->align < element ? element : declared->align;
  declared->bytes = element * count;
  return true;
}

// An integer, 0f and 0d with the bits of a float.
bool ReadLiteral(const std::string& text, uint64_t* bits) {
  const bool is_float = text.size() > 2 && text[0] == '0' && std::strchr("fdFD", text[1]);
  const char* const digits = text.c_str() + (is_float ? 2 : 0);
  char* end = nullptr;
  if (text[0] == '-') {
    *bits = static_cast<uint64_t>(std::strtoll(digits, &end, 0));
  } else {
    *bits = std::strtoull(digits, &end, is_float ? 16 : 0);
  }
  return end != digits && *end == '\0';
}

uint32_t WordsOf(char kind) { return kind == 'p' ? 1 : kind == 'w' ? kWarpLanes : 2 * kWarpLanes; }

}  // namespace

PtxKernelBuilder::PtxKernelBuilder(const std::string& name) {
  kernel_.name = name;
  const char* const names[kSpecials] = {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x", "%laneid"};
  for (uint32_t i = 0; i < kSpecials; ++i) {
    const PtxOperand at = NewRegister('w');
    kernel_.special[i] = at;
    registers_[names[i]] = {'w', 1, at.word, at.index};
  }
}

PtxOperand PtxKernelBuilder::NewRegister(char kind) {
  if (kind == 'd') kernel_.words += kernel_.words % 2;
  const PtxOperand operand = {kernel_.words, kernel_.registers++, kind};
  kernel_.words += WordsOf(kind);
  return operand;
}

PtxOperand PtxKernelBuilder::Constant(char kind, uint64_t bits) {
  if (kind == 'p') bits = bits != 0 ? 0xffffffffu : 0;
  if (kind == 'w') bits &= 0xffffffffu;
  const auto [at, fresh] = constants_.try_emplace({kind, bits}, PtxOperand());
  if (fresh) {
    at->second = NewRegister(kind);
    kernel_.constants.push_back({at->second, bits});
  }
  return at->second;
}

std::string PtxKernelBuilder::AddParam(const std::string& declaration) {
  Declared declared;
  if (!ReadDeclaration(declaration, &declared)) return "parameter: " + declaration;
  const uint32_t at = (kernel_.param_bytes + declared.align - 1) / declared.align * declared.align;
  symbols_[declared.name] = at;
  kernel_.param_offsets.push_back(at);
  kernel_.param_bytes = at + declared.bytes;
  return "";
}

std::string PtxKernelBuilder::AddLocal(const std::string& declaration) {
  Declared declared;
  if (!ReadDeclaration(declaration, &declared)) return "local memory: " + declaration;
  const uint32_t at = (kernel_.local_bytes + declared.align - 1) / declared.align * declared.align;
  symbols_[declared.name] = at;
  kernel_.local_bytes = at + declared.bytes;
  return "";
}

std::string PtxKernelBuilder::AddRegisters(const std::string& declaration) {
  const std::vector<std::string> words = Words(declaration);
  if (words.size() != 3) return "registers: " + declaration;
  const bool is_pred = words[1] == ".pred";
  const uint32_t bytes = is_pred ? 1 : BytesOf(words[1]);
  if (bytes == 0 || bytes > 8) return "registers of a type that is not known: " + declaration;
  const char kind = is_pred ? 'p' : bytes == 8 ? 'd' : 'w';
  const size_t open = words[2].find('<');
  const uint32_t count =
      open == std::string::npos
          ? 1
          : static_cast<uint32_t>(std::strtoul(words[2].c_str() + open + 1, nullptr, 10));
  if (kind == 'd') kernel_.words += kernel_.words % 2;
  const std::string name = words[2].substr(0, open);
  registers_[open == std::string::npos ? name : name + "<"] = {kind, count, kernel_.words,
                                                               kernel_.registers};
  kernel_.words += count * WordsOf(kind);
  kernel_.registers += count;
  return "";
}

bool PtxKernelBuilder::FindRegister(const std::string& name, PtxOperand* operand) const {
  uint32_t number = 0;
  auto found = registers_.find(name);
  if (found == registers_.end()) {
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    found = registers_.find(name.substr(0, digits) + "<");
    number = static_cast<uint32_t>(std::strtoul(name.c_str() + digits, nullptr, 10));
  }
  if (found == registers_.end() || number >= found->second.count) return false;
  const Registers& of = found->second;
  *operand = {of.word + number * WordsOf(of.kind), of.index + number, of.kind};
  return true;
}

std::string PtxKernelBuilder::AddLabel(const std::string& name) {
  labels_[name] = static_cast<uint32_t>(kernel_.code.size());
  return "";
}

// A register, a literal or the address of a parameter or local array.
std::string PtxKernelBuilder::ReadValue(const std::string& text, char kind, PtxOperand* operand) {
  if (text.empty()) return "an empty operand";
  if (text[0] == '%') {
    if (!FindRegister(text, operand)) return "a register that is not declared: " + text;
    if (kind != 'V' && operand->kind != kind) return "a register of another width: " + text;
    return "";
  }
  const auto symbol = symbols_.find(text);
  uint64_t bits = symbol != symbols_.end() ? symbol->second : 0;
  if (symbol == symbols_.end() && !ReadLiteral(text, &bits)) return "operand: " + text;
  *operand = Constant(kind == 'V' ? 'd' : kind, bits);
  return "";
}

std::string PtxKernelBuilder::ReadAddress(const std::string& text, PtxInstruction* to) {
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return "address: " + text;
  const std::string inside = text.substr(1, text.size() - 2);
  const size_t plus = inside.find('+');
  if (plus != std::string::npos) {
    uint64_t offset = 0;
    if (!ReadLiteral(Trimmed(inside.substr(plus + 1)), &offset)) return "address: " + text;
    to->offset = static_cast<int64_t>(offset);
  }
  return ReadValue(Trimmed(inside.substr(0, plus)), 'd', &to->from[to->from_count++]);
}

std::string PtxKernelBuilder::ReadTo(const std::string& text, char kind, PtxInstruction* to) {
  std::vector<std::string> names = {text};
  if (kind == 'V' && text[0] == '{') names = Split(text.substr(1, text.size() - 2));
  const size_t bar = text.find('|');
  if (kind == 's' && bar != std::string::npos) names = {text.substr(0, bar), text.substr(bar + 1)};
  if (names.size() > 4) return "a vector of more than 4: " + text;
  for (size_t i = 0; i < names.size(); ++i) {
    const char wanted = kind != 's' ? kind : i == 0 ? 'w' : 'p';
    PtxOperand* const operand = &to->to[to->to_count++];
    if (names[i][0] != '%') return "what is written is no register: " + text;
    const std::string error = ReadValue(names[i], wanted, operand);
    if (!error.empty()) return error;
  }
  return "";
}

std::string PtxKernelBuilder::ReadFrom(const std::string& text, char kind, PtxInstruction* to) {
  if (kind == 'm') return ReadAddress(text, to);
  if (kind == 'l') {
    jumps_.push_back({static_cast<uint32_t>(kernel_.code.size()), text});
    return "";
  }
  std::vector<std::string> names = {text};
  if (kind == 'V' && text[0] == '{') names = Split(text.substr(1, text.size() - 2));
  if (to->from_count + names.size() > 5) return "too many operands: " + text;
  for (const std::string& name : names) {
    const std::string error = ReadValue(name, kind, &to->from[to->from_count++]);
    if (!error.empty()) return error;
  }
  return "";
}

std::string PtxKernelBuilder::ReadOperands(const std::vector<std::string>& operands,
                                           const char* shape, PtxInstruction* to) {
  const size_t wanted = std::strlen(shape) - (std::strchr(shape, '=') != nullptr);
  if (operands.size() != wanted) {
    return std::to_string(operands.size()) + " operands, expected " + std::to_string(wanted);
  }
  bool writes = std::strchr(shape, '=') != nullptr;
  size_t next = 0;
  for (const char* kind = shape; *kind != '\0'; ++kind) {
    if (*kind == '=') {
      writes = false;
      continue;
    }
    const std::string& text = operands[next++];
    const std::string error = writes ? ReadTo(text, *kind, to) : ReadFrom(text, *kind, to);
    if (!error.empty()) return error;
  }
  return "";
}

std::string PtxKernelBuilder::AddInstruction(const std::string& text, uint32_t line) {
  PtxInstruction instruction;
  instruction.line = line;
  std::string rest = text;
  if (rest[0] == '@') {
    const size_t end = rest.find_first_of(kSpace);
    instruction.guarded = true;
    instruction.negated = rest[1] == '!';
    const size_t name = instruction.negated ? 2 : 1;
    const std::string error = ReadValue(rest.substr(name, end - name), 'p', &instruction.guard);
    if (!error.empty()) return error;
    rest = Trimmed(rest.substr(end));
  }
  const size_t end = rest.find_first_of(kSpace);
  std::string opcode = rest.substr(0, end);
  const std::vector<std::string> operands =
      end == std::string::npos ? std::vector<std::string>() : Split(rest.substr(end));
  if (opcode.rfind("mov.b", 0) == 0 && operands.size() == 2) {
    if (operands[0][0] == '{') opcode += ".unpack";
    if (operands[1][0] == '{') opcode += ".pack";
  }
  instruction.operation = FindOperation(opcode);
  if (instruction.operation == nullptr) return "an opcode that is not known: " + opcode;
  if (instruction.guarded && instruction.operation->kind == OperationKind::kSync) {
    return "a guard before what lanes do together is not supported: " + text;
  }
  const std::string error = ReadOperands(operands, instruction.operation->shape, &instruction);
  if (!error.empty()) return opcode + ": " + error;
  kernel_.code.push_back(instruction);
  kernel_.texts.push_back(text);
  return "";
}

std::string PtxKernelBuilder::Finish(PtxKernel* kernel) {
  for (const auto& [at, label] : jumps_) {
    const auto found = labels_.find(label);
    if (found == labels_.end() || found->second >= kernel_.code.size()) {
      return "a branch to a label that leads nowhere: " + label;
    }
    kernel_.code[at].target = found->second;
  }
  if (kernel_.code.empty() ||
      (kernel_.code.back().operation->kind != OperationKind::kReturn &&
       kernel_.code.back().operation->kind != OperationKind::kBranch) ||
      kernel_.code.back().guarded) {
    return "a kernel must end with ret or a branch";
  }
  *kernel = std::move(kernel_);
  return "";
}

}  // namespace device
}  // namespace hotbed
