#include "server/tiers/spill/row_block.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/files/crc32c.h"

namespace hotbed {
namespace {

// A CRC that is stored next to the data it covers is masked, so that a CRC over both stays useful
// (as in LevelDB).
uint32_t MaskedCrc(absl::string_view block) {
  const uint32_t crc = Crc32c(block.data() + 4, block.size() - 4);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

RowBlockWriter::RowBlockWriter(uint32_t record_bytes, bool sealed)
    : record_bytes_(record_bytes), sealed_(sealed), bytes_(kRowBlockHeaderBytes, '\0') {}

void RowBlockWriter::Add(uint64_t position, absl::string_view record) {
  char at[kRowBlockPositionBytes];
  StoreLittle<uint64_t>(at, position);
  bytes_.append(at, kRowBlockPositionBytes);
  bytes_.append(record.data(), record.size());
  bytes_.append(record_bytes_ - record.size(), '\0');
  ++rows_;
}

std::string RowBlockWriter::Finish() {
  StoreLittle<uint32_t>(&bytes_[4], sealed_ ? kRowBlockVersion : kUnsealedVersion);
  StoreLittle<uint32_t>(&bytes_[8], rows_);
  StoreLittle<uint32_t>(&bytes_[12], record_bytes_);
  if (sealed_) StoreLittle<uint32_t>(&bytes_[0], MaskedCrc(bytes_));
  return std::move(bytes_);
}

absl::StatusOr<RowBlock> RowBlock::Parse(absl::string_view bytes, uint32_t record_bytes,
                                         bool may_be_unsealed) {
  if (bytes.size() < kRowBlockHeaderBytes) {
    return absl::DataLossError(absl::StrCat("a block of rows has ", bytes.size(), " bytes, fewer ",
                                            "than the ", kRowBlockHeaderBytes, " of its header"));
  }
  const uint32_t version = LoadLittle<uint32_t>(bytes.data() + 4);
  const bool unsealed = may_be_unsealed && version == kUnsealedVersion;
  if (!unsealed && LoadLittle<uint32_t>(bytes.data()) != MaskedCrc(bytes)) {
    return absl::DataLossError(
        absl::StrCat("a block of rows of ", bytes.size(), " bytes fails its checksum"));
  }
  if (!unsealed && version != kRowBlockVersion) {
    return absl::FailedPreconditionError(absl::StrCat("a block of rows has version ", version,
                                                      ", this program reads ", kRowBlockVersion));
  }
  const uint32_t rows = LoadLittle<uint32_t>(bytes.data() + 8);
  const uint32_t size = LoadLittle<uint32_t>(bytes.data() + 12);
  if (size != record_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a block of rows has records of ", size,
                                                   " bytes, the shard has ", record_bytes));
  }
  const uint64_t wanted = kRowBlockHeaderBytes + rows * (kRowBlockPositionBytes + uint64_t{size});
  if (bytes.size() != wanted) {
    return absl::DataLossError(absl::StrCat("a block of ", rows, " rows has ", bytes.size(),
                                            " bytes where ", wanted, " were expected"));
  }
  return RowBlock(bytes.substr(kRowBlockHeaderBytes), rows, size);
}

uint64_t RowBlock::position(uint32_t row) const {
  return LoadLittle<uint64_t>(bytes_.data() + row * (kRowBlockPositionBytes + record_bytes_));
}

absl::string_view RowBlock::record(uint32_t row) const {
  return bytes_.substr(row * (kRowBlockPositionBytes + record_bytes_) + kRowBlockPositionBytes,
                       record_bytes_);
}

}  // namespace hotbed
