#include "checkpoint/npy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/byte_order.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::string_view kNpyMagic = "\x93NUMPY";
constexpr uint64_t kNpyAlignment = 64;
constexpr uint64_t kNpyHeaderBytesMax = 64 << 10;

absl::Status FileError(const char* what, const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", what, ": ", strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == EEXIST) return absl::AlreadyExistsError(message);
  if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::UnavailableError(message);
}

absl::StatusOr<uint32_t> ItemBytes(absl::string_view type) {
  if (type == "<f4") return 4;
  if (type == "<f2") return 2;
  if (type == "<u8" || type == "<i8") return 8;
  return absl::InvalidArgumentError(absl::StrCat(
      "its elements are '", type, absl::StartsWith(type, ">") ? "', which is big-endian" : "'",
      "; allowed: '<f4', '<f2', and '<u8' or '<i8' for ids"));
}

// The value of 'key' in the header's dictionary, up to a comma outside of brackets.
absl::StatusOr<std::string> FieldOf(absl::string_view header, absl::string_view key) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == header.npos) return absl::InvalidArgumentError(absl::StrCat("it has no '", key, "'"));
  header.remove_prefix(at + key.size() + 3);
  const size_t open = header.find('('), comma = header.find(',');
  const size_t end = open < comma ? header.find(')') + 1 : std::min(comma, header.find('}'));
  return std::string(absl::StripAsciiWhitespace(header.substr(0, end)));
}

absl::StatusOr<NpyArray> ParseHeader(absl::string_view header) {
  NpyArray array;
  HOTBED_ASSIGN_OR_RETURN(const std::string type, FieldOf(header, "descr"));
  array.type = std::string(absl::StripSuffix(absl::StripPrefix(type, "'"), "'"));
  HOTBED_ASSIGN_OR_RETURN(const std::string fortran, FieldOf(header, "fortran_order"));
  if (fortran != "False") {
    return absl::InvalidArgumentError(
        "its rows are not contiguous (Fortran order); write it with numpy.ascontiguousarray");
  }
  HOTBED_ASSIGN_OR_RETURN(const std::string shape, FieldOf(header, "shape"));
  std::vector<uint64_t> sizes;
  for (const absl::string_view part :
       absl::StrSplit(absl::StripSuffix(absl::StripPrefix(shape, "("), ")"), ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(part);
    if (text.empty()) continue;
    if (!absl::SimpleAtoi(text, &sizes.emplace_back())) sizes.assign(3, 0);
  }
  const bool valid = sizes.size() == 1 || (sizes.size() == 2 && sizes[1] > 0);
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its shape is ", shape, "; allowed: rows x columns, or one dimension for ids"));
  }
  array.rows = sizes[0];
  array.columns = sizes.size() == 2 ? sizes[1] : 0;
  return array;
}

std::string HeaderOf(const NpyArray& array) {
  std::string text =
      absl::StrCat("{'descr': '", array.type, "', 'fortran_order': False, 'shape': (", array.rows,
                   array.columns == 0 ? ",)" : ", ");
  if (array.columns != 0) absl::StrAppend(&text, array.columns, ")");
  absl::StrAppend(&text, ", }");
  std::string header(kNpyMagic);
  header += std::string("\x01\x00\x00\x00", 4);  // version 1.0, and the length below
  while ((header.size() + text.size() + 1) % kNpyAlignment != 0) text += ' ';
  text += '\n';
  StoreLittle<uint16_t>(header.data() + 8, static_cast<uint16_t>(text.size()));
  return header + text;
}

uint64_t BytesOf(const NpyArray& array, uint32_t item_bytes) {
  return array.rows * std::max<uint64_t>(array.columns, 1) * item_bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpyFile>> NpyFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot be opened", path);
  struct stat info = {};
  std::unique_ptr<NpyFile> file(new NpyFile);
  file->path_ = path;
  if (fstat(fd, &info) == 0 && info.st_size > 0) {
    file->map_bytes_ = static_cast<uint64_t>(info.st_size);
    void* const map = mmap(nullptr, file->map_bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    file->map_ = map == MAP_FAILED ? nullptr : static_cast<uint8_t*>(map);
  }
  close(fd);
  const auto refused = [&path](const absl::Status& why) {
    return absl::Status(why.code(), absl::StrCat(path, ": ", why.message()));
  };
  const absl::string_view bytes(reinterpret_cast<const char*>(file->map_),
                                file->map_ == nullptr ? 0 : file->map_bytes_);
  if (bytes.size() < 12 || bytes.substr(0, kNpyMagic.size()) != kNpyMagic) {
    return refused(absl::InvalidArgumentError("it is no .npy file"));
  }
  const bool wide = bytes[6] > 1;
  const uint64_t begin = wide ? 12 : 10;
  const uint64_t length =
      wide ? LoadLittle<uint32_t>(bytes.data() + 8) : LoadLittle<uint16_t>(bytes.data() + 8);
  if (length > kNpyHeaderBytesMax || begin + length > bytes.size()) {
    return refused(absl::DataLossError("it is cut off in its header"));
  }
  auto array = ParseHeader(bytes.substr(begin, length));
  if (!array.ok()) return refused(array.status());
  auto item_bytes = ItemBytes(array->type);
  if (!item_bytes.ok()) return refused(item_bytes.status());
  file->array_ = *std::move(array);
  file->item_bytes_ = *item_bytes;
  file->data_ = file->map_ + begin + length;
  const uint64_t there = bytes.size() - begin - length;
  const double wanted = static_cast<double>(file->array_.rows) *
                        static_cast<double>(std::max<uint64_t>(file->array_.columns, 1)) *
                        file->item_bytes_;
  if (static_cast<double>(there) >= wanted) return file;
  return refused(absl::DataLossError(
      absl::StrCat("it is cut off: ", there, " bytes of elements, ", "its header says ", wanted)));
}

absl::StatusOr<std::unique_ptr<NpyFile>> NpyFile::Create(const std::string& path,
                                                         const NpyArray& array) {
  HOTBED_ASSIGN_OR_RETURN(const uint32_t item_bytes, ItemBytes(array.type));
  const std::string header = HeaderOf(array);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("cannot be made", path);
  std::unique_ptr<NpyFile> file(new NpyFile);
  file->path_ = path;
  file->array_ = array;
  file->item_bytes_ = item_bytes;
  file->map_bytes_ = header.size() + BytesOf(array, item_bytes);
  // Reserved: a store into a mapped file has no other way to say that the disk is full.
  errno = posix_fallocate(fd, 0, static_cast<off_t>(file->map_bytes_));
  void* map = MAP_FAILED;
  if (errno == 0) {
    map = mmap(nullptr, file->map_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (map == MAP_FAILED) {
    const absl::Status error = FileError("cannot be made", path);
    close(fd);
    unlink(path.c_str());
    return error;
  }
  close(fd);
  file->map_ = static_cast<uint8_t*>(map);
  memcpy(file->map_, header.data(), header.size());
  file->data_ = file->map_ + header.size();
  return file;
}

NpyFile::~NpyFile() {
  if (map_ != nullptr) munmap(map_, map_bytes_);
}

absl::Status NpyFile::Sync() {
  return msync(map_, map_bytes_, MS_SYNC) == 0 ? absl::OkStatus() : FileError("sync", path_);
}

}  // namespace hotbed
