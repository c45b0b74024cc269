#include "cli/tables/id_histogram.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/array_file.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"

namespace hotbed {
namespace {

constexpr uint64_t kPieceElements = 1 << 16;
constexpr size_t kIdBytesMax = 20;

void Add(uint64_t id, IdHistogram* histogram) {
  ++histogram->ids;
  if (id < histogram->counts.size()) {
    ++histogram->counts[id];
  } else {
    ++histogram->outside;
  }
}

absl::StatusOr<ArrayInfo> NumbersIn(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<ArrayInfo> arrays, FindArrays(path));
  if (arrays.size() == 1 && arrays[0].element == ElementType::kId) return arrays[0];
  return absl::InvalidArgumentError(absl::StrCat(
      "file ", path, " has ", arrays.empty() ? "no array" : arrays[0].type, " ",
      arrays.empty() ? "" : arrays[0].shape, ", allowed: whole numbers of 64 bits (<i8, <u8)"));
}

// Calls `take` with each piece of the numbers.
template <typename Take>
absl::Status ForEachPiece(const std::string& path, const ArrayInfo& array, const Take& take) {
  HOTBED_ASSIGN_OR_RETURN(const auto file, ArrayFile::Open(path, /*writes=*/false));
  const uint64_t elements = array.rows * std::max<uint64_t>(array.columns, 1);
  std::vector<uint64_t> piece;
  for (uint64_t at = 0; at < elements; at += piece.size()) {
    piece.resize(std::min(kPieceElements, elements - at));
    HOTBED_RETURN_IF_ERROR(file->Read(array.offset + 8 * at, 8 * piece.size(), piece.data()));
    HOTBED_RETURN_IF_ERROR(take(at, piece));
  }
  return absl::OkStatus();
}

absl::Status CountText(const std::string& path, IdHistogram* histogram,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("file ", path, " cannot be read"));
  file.seekg(0, std::ios::end);
  const auto bytes = static_cast<uint64_t>(file.tellg());
  file.seekg(0);
  std::string word;
  std::vector<char> piece(1 << 16);
  uint64_t line = 1, done = 0;
  const auto take = [&]() -> absl::Status {
    uint64_t id = 0;
    int64_t negative = 0;
    if (word.empty()) return absl::OkStatus();
    if (!absl::SimpleAtoi(word, &id)) {
      if (!absl::SimpleAtoi(word, &negative)) {
        return absl::InvalidArgumentError(
            absl::StrCat("file ", path, ", line ", line, ": '", word,
                         "' is no id, allowed: whole numbers between blanks, commas or line ends"));
      }
      id = static_cast<uint64_t>(negative);
    }
    Add(id, histogram);
    word.clear();
    return absl::OkStatus();
  };
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    const auto count = static_cast<size_t>(file.gcount());
    for (size_t i = 0; i < count; ++i) {
      const char c = piece[i];
      const bool ends = absl::ascii_isspace(static_cast<unsigned char>(c)) || c == ',';
      if (!ends && word.size() <= kIdBytesMax) word.push_back(c);
      if (!ends) continue;
      HOTBED_RETURN_IF_ERROR(take());
      if (c == '\n') ++line;
    }
    done += count;
    progress(done, bytes);
  }
  return take();
}

}  // namespace

absl::Status CountIds(const std::string& path, IdHistogram* histogram,
                      const std::function<void(uint64_t, uint64_t)>& progress) {
  if (!absl::EndsWith(path, ".npy")) return CountText(path, histogram, progress);
  HOTBED_ASSIGN_OR_RETURN(const ArrayInfo array, NumbersIn(path));
  const uint64_t bytes = array.rows * array.row_bytes();
  return ForEachPiece(path, array, [&](uint64_t at, const std::vector<uint64_t>& piece) {
    for (const uint64_t id : piece) Add(id, histogram);
    progress(8 * (at + piece.size()), bytes);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<uint64_t>> ReadHistogram(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const ArrayInfo array, NumbersIn(path));
  if (array.columns != 0 || array.rows == 0 || array.rows > kFrequencyRowsMax) {
    return absl::InvalidArgumentError(absl::StrCat("file ", path, " has shape ", array.shape,
                                                   ", allowed: one count for each of 1..",
                                                   kFrequencyRowsMax, " ids"));
  }
  std::vector<uint64_t> counts;
  counts.reserve(array.rows);
  HOTBED_RETURN_IF_ERROR(
      ForEachPiece(path, array, [&](uint64_t at, const std::vector<uint64_t>& piece) {
        for (size_t i = 0; i < piece.size(); ++i) {
          if (piece[i] >> 40 == 0) continue;
          return absl::InvalidArgumentError(
              absl::StrCat("file ", path, ": the count of id ", at + i, " is ",
                           static_cast<int64_t>(piece[i]), ", allowed: 0..2^40-1"));
        }
        counts.insert(counts.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      }));
  return counts;
}

absl::Status WriteHistogram(const std::string& path, absl::Span<const uint64_t> counts) {
  std::vector<ArrayInfo> arrays(1);
  arrays[0].type = "<i8";
  arrays[0].element = ElementType::kId;
  arrays[0].rows = counts.size();
  HOTBED_RETURN_IF_ERROR(MakeArrays(path, &arrays));
  HOTBED_ASSIGN_OR_RETURN(const auto file, ArrayFile::Open(path, /*writes=*/true));
  HOTBED_RETURN_IF_ERROR(file->Write(arrays[0].offset, counts.data(), 8 * counts.size()));
  return file->Sync();
}

}  // namespace hotbed
