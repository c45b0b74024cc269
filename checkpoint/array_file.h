// Arrays in files of other programs: NumPy's .npy, and the tensors of .safetensors. They are read
// and written in pieces, so they may be larger than memory.
#ifndef HOTBED_CHECKPOINT_ARRAY_FILE_H_
#define HOTBED_CHECKPOINT_ARRAY_FILE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hotbed {

enum class ElementType : uint8_t { kOther, kFp32, kFp16, kBf16, kId };  // kId: u64 or i64

constexpr uint32_t BytesOf(ElementType type) {
  return type == ElementType::kFp32 ? 4 : type == ElementType::kId ? 8 : 2;
}

struct ArrayInfo {
  std::string name;  // of a tensor; empty in an .npy file
  std::string type;  // as the file has it: "<f4", "BF16"
  ElementType element = ElementType::kOther;
  std::string shape;     // for messages
  uint64_t rows = 0;     // if it has one or two dimensions
  uint64_t columns = 0;  // 0: it has one
  uint64_t offset = 0;   // in the file, of its first byte

  bool is_matrix() const { return columns > 0 && element != ElementType::kId; }
  uint64_t row_bytes() const { return std::max<uint64_t>(columns, 1) * BytesOf(element); }
};

bool IsSafetensors(const std::string& path);  // by its ending

// The array of an .npy file, or the tensors of a .safetensors file. InvalidArgument names the file,
// what it has and what is allowed; DataLoss: it is cut off; NotFound.
absl::StatusOr<std::vector<ArrayInfo>> FindArrays(const std::string& path);

// Makes a new file of zeros with these arrays, whose space is reserved, and sets their offsets. An
// .npy file has one. AlreadyExists; ResourceExhausted: the disk is full.
absl::Status MakeArrays(const std::string& path, std::vector<ArrayInfo>* arrays);

// The bytes of a file. Thread-safe; calls block. The messages name the file.
class ArrayFile {
 public:
  // To read it, or to write into it.
  static absl::StatusOr<std::unique_ptr<ArrayFile>> Open(const std::string& path, bool writes);
  ~ArrayFile();
  ArrayFile(const ArrayFile&) = delete;

  absl::Status Read(uint64_t offset, uint64_t bytes, void* out) const;  // DataLoss: cut off
  absl::Status Write(uint64_t offset, const void* from, uint64_t bytes);
  absl::Status Sync();
  // As of Open.
  uint64_t bytes() const { return bytes_; }
  int64_t modified_unix_ns() const { return modified_unix_ns_; }
  bool remote() const { return remote_; }  // on NFS

 private:
  ArrayFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  uint64_t bytes_ = 0;
  int64_t modified_unix_ns_ = 0;
  bool remote_ = false;
};

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_ARRAY_FILE_H_
