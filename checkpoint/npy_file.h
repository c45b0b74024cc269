// NumPy's array files (.npy), memory-mapped: arrays may be larger than memory. Thread-compatible.
#ifndef HOTBED_CHECKPOINT_NPY_FILE_H_
#define HOTBED_CHECKPOINT_NPY_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hotbed {

struct NpyArray {
  std::string type;  // as NumPy writes it: "<f4"
  uint64_t rows = 0;
  uint64_t columns = 0;  // 0: an array of one dimension
};

class NpyFile {
 public:
  // Only arrays of one or two dimensions in C order, little-endian, of 4-byte or 2-byte floats or
  // 8-byte integers. InvalidArgument names the file, what it has and what is allowed; DataLoss: it
  // is cut off; NotFound.
  static absl::StatusOr<std::unique_ptr<NpyFile>> Open(const std::string& path);
  // A new file of zeros, whose space is reserved. AlreadyExists; ResourceExhausted: the disk is
  // full.
  static absl::StatusOr<std::unique_ptr<NpyFile>> Create(const std::string& path,
                                                         const NpyArray& array);
  ~NpyFile();
  NpyFile(const NpyFile&) = delete;

  const NpyArray& array() const { return array_; }
  uint32_t item_bytes() const { return item_bytes_; }
  const uint8_t* data() const { return data_; }
  uint8_t* data() { return data_; }  // of a created file
  // A created file is on the disk.
  absl::Status Sync();

 private:
  NpyFile() = default;

  std::string path_;
  NpyArray array_;
  uint32_t item_bytes_ = 0;
  uint8_t* map_ = nullptr;
  uint64_t map_bytes_ = 0;
  uint8_t* data_ = nullptr;
};

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_NPY_FILE_H_
