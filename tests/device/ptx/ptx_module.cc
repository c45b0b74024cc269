#include "tests/device/ptx/ptx_module.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>

#include "tests/device/ptx/ptx_kernel_builder.h"

namespace hotbed {
namespace device {
namespace {

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool Begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string full = status == 0 && plain != nullptr ? plain : name;
  std::free(plain);
  return full;
}

std::string PlaceText(const std::string& file, uint32_t line) {
  return file + ":" + std::to_string(line) + ": ";
}

// One file, line by line: nvcc writes one statement a line.
class Parser {
 public:
  explicit Parser(std::vector<PtxKernel>* kernels) : kernels_(kernels) {}

  std::string Line(const std::string& line, uint32_t number) {
    if (in_params_) return Params(line);
    if (!in_body_) return Outside(line);
    // A block's registers are new ones under their names, which mean nothing after it.
    if (line == "{") return ++blocks_, "";
    if (line == "}") return blocks_ > 0 ? (--blocks_, "") : EndKernel();
    if (line.back() == ':') return kernel_->AddLabel(line.substr(0, line.size() - 1));
    if (line.back() != ';') return "a statement that does not end with ';' on its line: " + line;
    const std::string statement = Trimmed(line.substr(0, line.size() - 1));
    if (Begins(statement, ".reg ")) return kernel_->AddRegisters(statement);
    if (Begins(statement, ".local ")) return kernel_->AddLocal(statement);
    if (Begins(statement, ".pragma ")) return "";
    if (statement[0] == '.') return "a directive that is not known: " + statement;
    return kernel_->AddInstruction(statement, number);
  }
  bool open() const { return in_body_ || in_params_; }

 private:
  std::string Outside(const std::string& line) {
    // The last is for the compiler's registers.
    for (const char* ignored : {".version", ".target", ".file", ".minnctapersm"}) {
      if (Begins(line, ignored)) return "";
    }
    if (Begins(line, ".address_size")) {
      return line.find("64") != std::string::npos ? "" : "addresses are not of 64 bits: " + line;
    }
    if (Begins(line, ".visible .entry ")) {
      const size_t open = line.find('(');
      if (open == std::string::npos) return "an entry without '(': " + line;
      kernel_ = std::make_unique<PtxKernelBuilder>(Trimmed(line.substr(16, open - 16)));
      in_params_ = true;
      return Params(Trimmed(line.substr(open + 1)));
    }
    if (Begins(line, ".maxntid") && kernel_ != nullptr) {
      kernel_->set_threads_max(
          static_cast<uint32_t>(std::strtoul(line.c_str() + sizeof(".maxntid"), nullptr, 10)));
      return "";
    }
    if (line == "{" && kernel_ != nullptr) {
      in_body_ = true;
      return "";
    }
    return "a directive that is not known: " + line;
  }

  std::string Params(const std::string& line) {
    const size_t close = line.find(')');
    std::istringstream parts(line.substr(0, close));
    for (std::string part; std::getline(parts, part, ',');) {
      part = Trimmed(part);
      const std::string error = part.empty() ? "" : kernel_->AddParam(part);
      if (!error.empty()) return error;
    }
    in_params_ = close == std::string::npos;
    return "";
  }

  std::string EndKernel() {
    PtxKernel kernel;
    const std::string error = kernel_->Finish(&kernel);
    kernel.full_name = Demangled(kernel.name);
    kernels_->push_back(std::move(kernel));
    kernel_.reset();
    in_body_ = false;
    return error;
  }

  std::vector<PtxKernel>* const kernels_;
  std::unique_ptr<PtxKernelBuilder> kernel_;
  bool in_params_ = false;
  bool in_body_ = false;
  uint32_t blocks_ = 0;  // open ones inside the body
};

}  // namespace

bool PtxModule::Parse(const std::string& file, const std::string& text, std::string* error) {
  Parser parser(&kernels);
  std::istringstream lines(text);
  uint32_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = Trimmed(line.substr(0, line.find("//")));
    if (line.empty()) continue;
    const std::string wrong = parser.Line(line, number);
    if (wrong.empty()) continue;
    *error = PlaceText(file, number) + wrong;
    return false;
  }
  if (!parser.open()) return true;
  *error = PlaceText(file, number) + "the file ends inside a kernel";
  return false;
}

const PtxKernel* PtxModule::Find(const std::string& part) const {
  const PtxKernel* found = nullptr;
  for (const PtxKernel& kernel : kernels) {
    if (kernel.full_name.find(part) == std::string::npos) continue;
    if (found != nullptr) return nullptr;
    found = &kernel;
  }
  return found;
}

}  // namespace device
}  // namespace hotbed
