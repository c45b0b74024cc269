// Writes little-endian integers and length-prefixed strings to a string, and reads them back with
// bounds checks: the format of the small files and the shard metadata of a server. A reader that
// has run past the end returns zeros, and ok() is false. Thread-compatible.
#ifndef HOTBED_COMMON_FILES_BYTE_READER_H_
#define HOTBED_COMMON_FILES_BYTE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/files/byte_order.h"

namespace hotbed {

template <typename T>
inline void AppendLittle(T value, std::string* out) {
  char bytes[sizeof(T)];
  StoreLittle<T>(bytes, value);
  out->append(bytes, sizeof(T));
}

inline void AppendString(absl::string_view value, std::string* out) {
  AppendLittle<uint32_t>(static_cast<uint32_t>(value.size()), out);
  out->append(value.data(), value.size());
}

class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Take() {
    if (bytes_.size() < sizeof(T)) return Fail<T>();
    const T value = LoadLittle<T>(bytes_.data());
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  std::string TakeString() {
    const uint32_t size = Take<uint32_t>();
    if (bytes_.size() < size) return Fail<std::string>();
    std::string value(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return value;
  }
  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size(); }

 private:
  template <typename T>
  T Fail() {
    ok_ = false;
    bytes_ = {};
    return T();
  }

  absl::string_view bytes_;
  bool ok_ = true;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILES_BYTE_READER_H_
