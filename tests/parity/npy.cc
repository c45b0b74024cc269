#include "tests/parity/npy.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/byte_order.h"
#include "common/status_macros.h"

namespace hotbed::parity {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kAlignment = 64;  // of the data, as numpy writes it
constexpr struct {
  NpyType type;
  absl::string_view name;
  size_t bytes;
} kTypes[] = {{NpyType::kF4, "f4", 4}, {NpyType::kF8, "f8", 8}, {NpyType::kI4, "i4", 4},
              {NpyType::kI8, "i8", 8}, {NpyType::kU4, "u4", 4}, {NpyType::kU8, "u8", 8}};

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a .npy file that is read here: ", what));
}

// The text behind 'KEY': in the header's dictionary, up to `end`.
std::optional<absl::string_view> ValueOf(absl::string_view header, absl::string_view key,
                                         absl::string_view end) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == absl::string_view::npos) return std::nullopt;
  absl::string_view rest = header.substr(at + key.size() + 3);
  const size_t last = rest.find(end);
  if (last == absl::string_view::npos) return std::nullopt;
  return absl::StripAsciiWhitespace(rest.substr(0, last));
}

absl::StatusOr<NpyType> ReadType(absl::string_view descr) {
  absl::string_view word = descr;
  const bool quoted = word.size() >= 2 && word.front() == '\'' && word.back() == '\'';
  if (quoted) word = word.substr(1, word.size() - 2);
  if (!word.empty() && word.front() == '<') {
    for (const auto& known : kTypes) {
      if (word.substr(1) == known.name) return known.type;
    }
  }
  return Bad(absl::StrCat("its elements are ", descr,
                          ", allowed: '<f4', '<f8', '<i4', '<i8', '<u4', '<u8' (use "
                          "array.astype('<f4'))"));
}

absl::StatusOr<std::vector<uint64_t>> ReadShape(absl::string_view text) {
  std::vector<uint64_t> shape;
  if (text.empty() || text.front() != '(') return Bad(absl::StrCat("its shape is ", text));
  for (absl::string_view part : absl::StrSplit(text.substr(1), ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;  // as in (3,)
    uint64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent > (uint64_t{1} << 40)) {
      return Bad(absl::StrCat("its shape is ", text, ")"));
    }
    shape.push_back(extent);
  }
  return shape;
}

// The header's dictionary, and where the data begins.
absl::StatusOr<std::pair<absl::string_view, size_t>> FindHeader(absl::string_view bytes) {
  if (bytes.size() < 10 || bytes.substr(0, kMagic.size()) != kMagic) {
    return Bad("it does not begin with \\x93NUMPY");
  }
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t version = byte(6);
  if (version < 1 || version > 3) {
    return Bad(absl::StrCat("version ", version, ", known: 1 to 3"));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t begin = 8 + length_bytes;
  if (bytes.size() < begin) return Bad("it ends within its header");
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= size_t{byte(8 + i)} << (8 * i);
  if (bytes.size() - begin < length) return Bad("it ends within its header");
  return std::make_pair(bytes.substr(begin, length), begin + length);
}

}  // namespace

absl::string_view NpyTypeName(NpyType type) { return kTypes[static_cast<size_t>(type)].name; }
size_t NpyTypeBytes(NpyType type) { return kTypes[static_cast<size_t>(type)].bytes; }

uint64_t NpyArray::size() const {
  uint64_t product = 1;
  for (const uint64_t extent : shape) product *= extent;
  return product;
}

absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes) {
  HOTBED_ASSIGN_OR_RETURN(const auto found, FindHeader(bytes));
  const auto [header, begin] = found;
  const auto descr = ValueOf(header, "descr", ",");
  const auto order = ValueOf(header, "fortran_order", ",");
  const auto shape = ValueOf(header, "shape", ")");
  if (!descr || !order || !shape) return Bad("its header lacks descr, fortran_order or shape");
  NpyArray array;
  HOTBED_ASSIGN_OR_RETURN(array.type, ReadType(*descr));
  HOTBED_ASSIGN_OR_RETURN(array.shape, ReadShape(*shape));
  if (*order != "False" && array.shape.size() > 1) {
    return Bad("it is in Fortran order (use numpy.ascontiguousarray)");
  }
  // In 128 bits: a header may claim more than there are bytes in the world.
  unsigned __int128 wanted = NpyTypeBytes(array.type);
  for (const uint64_t extent : array.shape) {
    wanted *= extent;
    if (wanted > (uint64_t{1} << 48)) return Bad("its shape is larger than any file");
  }
  const size_t present = bytes.size() - begin;
  if (wanted != present) {
    return Bad(absl::StrCat("its shape (", absl::StrJoin(array.shape, ", "), ") of ",
                            NpyTypeName(array.type), " takes ", static_cast<uint64_t>(wanted),
                            " bytes, behind the header are ", present));
  }
  array.data = std::string(bytes.substr(begin));
  return array;
}

std::string FormatNpy(const NpyArray& array) {
  const std::string shape = array.shape.size() == 1 ? absl::StrCat(array.shape[0], ",")
                                                    : absl::StrJoin(array.shape, ", ");
  std::string header = absl::StrCat("{'descr': '<", NpyTypeName(array.type),
                                    "', 'fortran_order': False, 'shape': (", shape, "), }");
  const size_t before = kMagic.size() + 4;
  const size_t total = (before + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(total - before - 1, ' ');
  header += '\n';
  const char version_and_length[] = {1, 0, static_cast<char>(header.size() & 0xff),
                                     static_cast<char>(header.size() >> 8)};
  return absl::StrCat(kMagic, absl::string_view(version_and_length, 4), header, array.data);
}

}  // namespace hotbed::parity
