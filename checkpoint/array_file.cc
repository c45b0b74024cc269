#include "checkpoint/array_file.h"

#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/byte_order.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::string_view kNpyMagic = "\x93NUMPY";
constexpr uint64_t kHeaderAlignment = 64;
constexpr uint64_t kNpyHeaderBytesMax = 64 << 10;
constexpr uint64_t kTensorsHeaderBytesMax = 100'000'000;  // as the format's own library has it

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

absl::Status Refused(absl::string_view why) { return absl::InvalidArgumentError(why); }

double BytesWanted(const ArrayInfo& array) {
  return static_cast<double>(array.rows) *
         static_cast<double>(std::max<uint64_t>(array.columns, 1)) * BytesOf(array.element);
}

// --- .npy

absl::StatusOr<ElementType> NpyElement(absl::string_view type) {
  if (type == "<f4") return ElementType::kFp32;
  if (type == "<f2") return ElementType::kFp16;
  if (type == "<u8" || type == "<i8") return ElementType::kId;
  return Refused(absl::StrCat("its elements are '", type,
                              absl::StartsWith(type, ">") ? "', which is big-endian" : "'",
                              "; allowed: '<f4', '<f2', and '<u8' or '<i8' for ids"));
}

// The value of 'key' in the header's dictionary, up to a comma outside of brackets.
absl::StatusOr<std::string> FieldOf(absl::string_view header, absl::string_view key) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == header.npos) return Refused(absl::StrCat("it has no '", key, "'"));
  header.remove_prefix(at + key.size() + 3);
  const size_t open = header.find('('), comma = header.find(',');
  const size_t end = open < comma ? header.find(')') + 1 : std::min(comma, header.find('}'));
  return std::string(absl::StripAsciiWhitespace(header.substr(0, end)));
}

absl::StatusOr<ArrayInfo> ParseNpy(absl::string_view header) {
  ArrayInfo array;
  HOTBED_ASSIGN_OR_RETURN(const std::string type, FieldOf(header, "descr"));
  array.type = std::string(absl::StripSuffix(absl::StripPrefix(type, "'"), "'"));
  HOTBED_ASSIGN_OR_RETURN(array.element, NpyElement(array.type));
  HOTBED_ASSIGN_OR_RETURN(const std::string fortran, FieldOf(header, "fortran_order"));
  if (fortran != "False") {
    return Refused(
        "its rows are not contiguous (Fortran order); write it with numpy.ascontiguousarray");
  }
  HOTBED_ASSIGN_OR_RETURN(array.shape, FieldOf(header, "shape"));
  std::vector<uint64_t> sizes;
  for (const absl::string_view part :
       absl::StrSplit(absl::StripSuffix(absl::StripPrefix(array.shape, "("), ")"), ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(part);
    if (text.empty()) continue;
    if (!absl::SimpleAtoi(text, &sizes.emplace_back())) sizes.assign(3, 0);
  }
  const bool valid = sizes.size() == 1 || (sizes.size() == 2 && sizes[1] > 0);
  if (!valid) {
    return Refused(absl::StrCat("its shape is ", array.shape,
                                "; allowed: rows x columns, or one dimension for ids"));
  }
  array.rows = sizes[0];
  array.columns = sizes.size() == 2 ? sizes[1] : 0;
  return array;
}

absl::StatusOr<std::vector<ArrayInfo>> FindNpy(const ArrayFile& file) {
  char begin[12];
  if (file.bytes() < sizeof(begin)) return Refused("it is no .npy file");
  HOTBED_RETURN_IF_ERROR(file.Read(0, sizeof(begin), begin));
  if (absl::string_view(begin, kNpyMagic.size()) != kNpyMagic) {
    return Refused("it is no .npy file");
  }
  const bool wide = begin[6] > 1;
  const uint64_t at = wide ? 12 : 10;
  const uint64_t length = wide ? LoadLittle<uint32_t>(begin + 8) : LoadLittle<uint16_t>(begin + 8);
  if (length > kNpyHeaderBytesMax || at + length > file.bytes()) {
    return absl::DataLossError("it is cut off in its header");
  }
  std::string header(length, '\0');
  HOTBED_RETURN_IF_ERROR(file.Read(at, length, header.data()));
  HOTBED_ASSIGN_OR_RETURN(ArrayInfo array, ParseNpy(header));
  array.offset = at + length;
  const uint64_t there = file.bytes() - array.offset;
  if (static_cast<double>(there) >= BytesWanted(array)) return std::vector{std::move(array)};
  return absl::DataLossError(absl::StrCat("it is cut off: ", there, " bytes of elements, ",
                                          "its header says ", BytesWanted(array)));
}

std::string NpyHeader(const ArrayInfo& array) {
  std::string text =
      absl::StrCat("{'descr': '", array.type, "', 'fortran_order': False, 'shape': (", array.rows,
                   array.columns == 0 ? ",)" : ", ");
  if (array.columns != 0) absl::StrAppend(&text, array.columns, ")");
  absl::StrAppend(&text, ", }");
  std::string header(kNpyMagic);
  header += std::string("\x01\x00\x00\x00", 4);  // version 1.0, and the length below
  while ((header.size() + text.size() + 1) % kHeaderAlignment != 0) text += ' ';
  text += '\n';
  StoreLittle<uint16_t>(header.data() + 8, static_cast<uint16_t>(text.size()));
  return header + text;
}

// --- safetensors: u64 bytes of a JSON header, the header, the tensors without gaps

uint32_t TensorElementBytes(absl::string_view type) {
  static constexpr struct {
    absl::string_view type;
    uint32_t bytes;
  } kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (const auto& known : kTypes) {
    if (known.type == type) return known.bytes;
  }
  return 0;
}

ElementType TensorElement(absl::string_view type) {
  if (type == "F32") return ElementType::kFp32;
  if (type == "F16") return ElementType::kFp16;
  if (type == "BF16") return ElementType::kBf16;
  return type == "I64" || type == "U64" ? ElementType::kId : ElementType::kOther;
}

// Whole numbers, exact in a double.
absl::StatusOr<std::vector<uint64_t>> NumbersOf(const google::protobuf::Struct& tensor,
                                                const std::string& name, const char* key) {
  const auto field = tensor.fields().find(key);
  if (field == tensor.fields().end() || !field->second.has_list_value()) {
    return Refused(absl::StrCat("tensor \"", name, "\" has no list \"", key, "\""));
  }
  std::vector<uint64_t> numbers;
  for (const google::protobuf::Value& value : field->second.list_value().values()) {
    const double number = value.has_number_value() ? value.number_value() : -1;
    if (number < 0 || number > 9007199254740992.0 || number != std::floor(number)) {
      return Refused(absl::StrCat("tensor \"", name, "\": \"", key, "\" has ", number,
                                  "; allowed: whole numbers up to 2^53"));
    }
    numbers.push_back(static_cast<uint64_t>(number));
  }
  return numbers;
}

absl::StatusOr<ArrayInfo> ParseTensor(const std::string& name, const google::protobuf::Value& value,
                                      uint64_t* bytes) {
  ArrayInfo array;
  array.name = name;
  const google::protobuf::Struct& tensor = value.struct_value();
  const auto type = tensor.fields().find("dtype");
  if (type != tensor.fields().end()) array.type = type->second.string_value();
  const uint32_t element_bytes = TensorElementBytes(array.type);
  if (element_bytes == 0) {
    return Refused(absl::StrCat("tensor \"", name, "\" is of the type \"", array.type,
                                "\", which is not known"));
  }
  HOTBED_ASSIGN_OR_RETURN(const auto shape, NumbersOf(tensor, name, "shape"));
  HOTBED_ASSIGN_OR_RETURN(const auto offsets, NumbersOf(tensor, name, "data_offsets"));
  double wanted = element_bytes;
  for (const uint64_t size : shape) wanted *= static_cast<double>(size);
  if (offsets.size() != 2 || offsets[1] < offsets[0] ||
      static_cast<double>(offsets[1] - offsets[0]) != wanted) {
    return Refused(absl::StrCat("tensor \"", name, "\" of ", wanted, " bytes has the offsets [",
                                absl::StrJoin(offsets, ", "), "]"));
  }
  array.shape = absl::StrCat("(", absl::StrJoin(shape, ", "), ")");
  array.offset = offsets[0];
  *bytes = offsets[1] - offsets[0];
  const bool usable = shape.size() == 1 || (shape.size() == 2 && shape[1] > 0);
  if (!usable) return array;
  array.element = TensorElement(array.type);
  array.rows = shape[0];
  array.columns = shape.size() == 2 ? shape[1] : 0;
  return array;
}

absl::StatusOr<std::vector<ArrayInfo>> FindTensors(const ArrayFile& file) {
  char begin[8];
  if (file.bytes() < sizeof(begin)) return Refused("it is no safetensors file");
  HOTBED_RETURN_IF_ERROR(file.Read(0, sizeof(begin), begin));
  const uint64_t length = LoadLittle<uint64_t>(begin);
  if (length > kTensorsHeaderBytesMax) return Refused("it is no safetensors file");
  if (length > file.bytes() - sizeof(begin)) {
    return absl::DataLossError("it is cut off in its header");
  }
  std::string header(length, '\0');
  HOTBED_RETURN_IF_ERROR(file.Read(sizeof(begin), length, header.data()));
  google::protobuf::Struct root;
  if (header.empty() || header[0] != '{' ||
      !google::protobuf::util::JsonStringToMessage(header, &root).ok()) {
    return Refused("its header is no JSON object");
  }
  const uint64_t data = sizeof(begin) + length;
  std::vector<ArrayInfo> arrays;
  std::vector<std::pair<uint64_t, uint64_t>> extents;
  for (const auto& [name, value] : root.fields()) {
    if (name == "__metadata__") continue;
    uint64_t bytes = 0;
    HOTBED_ASSIGN_OR_RETURN(ArrayInfo array, ParseTensor(name, value, &bytes));
    extents.emplace_back(array.offset, array.offset + bytes);
    array.offset += data;
    arrays.push_back(std::move(array));
  }
  std::sort(extents.begin(), extents.end());
  uint64_t end = 0;
  for (const auto& [first, limit] : extents) {
    if (first != end) return Refused("its tensors overlap, or leave gaps");
    end = limit;
  }
  const uint64_t there = file.bytes() - data;
  if (there < end) {
    return absl::DataLossError(
        absl::StrCat("it is cut off: ", there, " bytes of tensors, its header says ", end));
  }
  if (there > end) return Refused("it goes on behind its last tensor");
  std::sort(arrays.begin(), arrays.end(),
            [](const ArrayInfo& a, const ArrayInfo& b) { return a.name < b.name; });
  return arrays;
}

std::string TensorsHeader(const std::vector<ArrayInfo>& arrays) {
  std::vector<std::string> parts;
  uint64_t at = 0;
  for (const ArrayInfo& array : arrays) {
    const uint64_t end = at + array.rows * array.row_bytes();
    parts.push_back(absl::StrCat("\"", array.name, "\":{\"dtype\":\"", array.type, "\",\"shape\":[",
                                 array.rows, array.columns == 0 ? "" : ",",
                                 array.columns == 0 ? "" : absl::StrCat(array.columns),
                                 "],\"data_offsets\":[", at, ",", end, "]}"));
    at = end;
  }
  std::string text = absl::StrCat("{", absl::StrJoin(parts, ","), "}");
  while ((sizeof(uint64_t) + text.size()) % kHeaderAlignment != 0) text += ' ';
  std::string header(sizeof(uint64_t), '\0');
  StoreLittle<uint64_t>(header.data(), text.size());
  return header + text;
}

}  // namespace

bool IsSafetensors(const std::string& path) { return absl::EndsWith(path, ".safetensors"); }

absl::StatusOr<std::vector<ArrayInfo>> FindArrays(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const auto file, ArrayFile::Open(path, /*writes=*/false));
  auto arrays = IsSafetensors(path) ? FindTensors(*file) : FindNpy(*file);
  if (arrays.ok() || absl::StrContains(arrays.status().message(), path)) return arrays;
  return absl::Status(arrays.status().code(), absl::StrCat(path, ": ", arrays.status().message()));
}

absl::Status MakeArrays(const std::string& path, std::vector<ArrayInfo>* arrays) {
  if (!IsSafetensors(path) && arrays->size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is to have ", arrays->size(), " arrays, and an .npy file has one"));
  }
  const std::string header =
      IsSafetensors(path) ? TensorsHeader(*arrays) : NpyHeader(arrays->front());
  uint64_t end = header.size();
  for (ArrayInfo& array : *arrays) {
    array.offset = end;
    end += array.rows * array.row_bytes();
  }
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("cannot be made", path);
  errno = posix_fallocate(fd, 0, static_cast<off_t>(end));
  const bool made = errno == 0 && pwrite(fd, header.data(), header.size(), 0) ==
                                      static_cast<ssize_t>(header.size());
  const absl::Status error = made ? absl::OkStatus() : FileError("cannot be made", path);
  close(fd);
  if (!made) unlink(path.c_str());
  return error;
}

absl::StatusOr<std::unique_ptr<ArrayFile>> ArrayFile::Open(const std::string& path, bool writes) {
  // A network file system reads the pages of a file that may be read, and writes whole ones back:
  // also the part of another writer.
  const int fd = open(path.c_str(), (writes ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
  if (fd < 0) return FileError("cannot be opened", path);
  std::unique_ptr<ArrayFile> file(new ArrayFile(path, fd));
  struct stat info = {};
  if (fstat(fd, &info) != 0) return FileError("cannot be opened", path);
  struct statfs system = {};
  file->remote_ = fstatfs(fd, &system) == 0 && system.f_type == NFS_SUPER_MAGIC;
  file->bytes_ = static_cast<uint64_t>(info.st_size);
  file->modified_unix_ns_ = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  return file;
}

ArrayFile::~ArrayFile() { close(fd_); }

absl::Status ArrayFile::Read(uint64_t offset, uint64_t bytes, void* out) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("cannot be read", path_);
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, ": it is cut off at ", offset));
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ArrayFile::Write(uint64_t offset, const void* from, uint64_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = pwrite(fd_, at, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError("cannot be written", path_);
    at += put;
    offset += static_cast<uint64_t>(put);
    bytes -= static_cast<uint64_t>(put);
  }
  return absl::OkStatus();
}

absl::Status ArrayFile::Sync() {
  return fdatasync(fd_) == 0 ? absl::OkStatus() : FileError("cannot be synced", path_);
}

}  // namespace hotbed
