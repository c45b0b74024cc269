#include "common/files/kept_file.h"

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr size_t kTrailerBytes = 24;

}  // namespace

absl::StatusOr<std::string> KeptFile::Read() {
  if (!files_->Exists(path_)) return absl::NotFoundError(absl::StrCat(path_, " does not exist"));
  HOTBED_ASSIGN_OR_RETURN(std::string bytes, files_->ReadAll(path_));
  if (bytes.size() < kTrailerBytes) {
    return absl::DataLossError(absl::StrCat(path_, " is cut short: ", bytes.size(),
                                            " bytes are left, fewer than its last ", kTrailerBytes,
                                            " must be"));
  }
  const size_t at = bytes.size() - kTrailerBytes;
  const char* const trailer = bytes.data() + at;
  if (LoadLittle<uint32_t>(trailer + 20) != Crc32c(trailer, 20)) {
    return absl::DataLossError(
        absl::StrCat(path_, " is cut short or damaged: its last bytes fail their checksum"));
  }
  const uint64_t generation = LoadLittle<uint64_t>(trailer);
  const uint64_t run = LoadLittle<uint64_t>(trailer + 8);
  const uint32_t crc = LoadLittle<uint32_t>(trailer + 16);
  const Mark mark = proof_.marks == nullptr ? Mark() : proof_.marks->Get(proof_.field);
  if (mark.a != 0) {
    const std::string found = absl::StrCat(path_, " is version ", generation);
    if (generation < mark.a) {
      return absl::DataLossError(absl::StrCat(found, ", the last one written was ", mark.a, " (",
                                              proof_.marks->path(),
                                              "): an older file is in its "
                                              "place"));
    }
    // A later one was written by the last run, in the moment before a kill.
    const bool the_last = generation == mark.a ? crc == mark.b : run == proof_.run_before;
    if (!the_last) {
      return absl::DataLossError(absl::StrCat(found, ", and another version ", generation,
                                              " was written last (", proof_.marks->path(),
                                              "): a file from a copy of its folder is in its "
                                              "place"));
    }
  }
  if (proof_.marks != nullptr) proof_.marks->Set(proof_.field, {generation, crc, 0});
  generation_ = generation;
  bytes.resize(at);
  return bytes;
}

absl::Status KeptFile::Write(absl::string_view content) {
  std::string bytes(content);
  bytes.resize(content.size() + kTrailerBytes);
  char* const trailer = bytes.data() + content.size();
  const uint32_t crc = Crc32c(content.data(), content.size());
  StoreLittle<uint64_t>(trailer, generation_ + 1);
  StoreLittle<uint64_t>(trailer + 8, proof_.run);
  StoreLittle<uint32_t>(trailer + 16, crc);
  StoreLittle<uint32_t>(trailer + 20, Crc32c(trailer, 20));
  HOTBED_RETURN_IF_ERROR(files_->WriteAtomically(path_, bytes));
  generation_ += 1;
  if (proof_.marks != nullptr) proof_.marks->Set(proof_.field, {generation_, crc, 0});
  return absl::OkStatus();
}

}  // namespace hotbed
