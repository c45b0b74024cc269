#include "checkpoint/rows_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/files/byte_reader.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr absl::string_view kMagic = "HOTBDROW";
constexpr absl::string_view kEnd = "HOTBDEND";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kCompressedVersion = 2;
constexpr uint32_t kHashed = 1;
constexpr uint32_t kCompressed = 2;
constexpr uint32_t kPacked = 1;
constexpr uint64_t kHeaderBytes = 32;
constexpr uint64_t kBlockHeadBytes = 16;
constexpr uint64_t kEntryBytes = 48;
constexpr uint64_t kTrailerBytes = 24;
constexpr uint64_t kIdBytes = 8;
constexpr uint64_t kBlockBytesMax = 256ull << 20;  // far above any that is written
constexpr size_t kPartBytesMax = 1ull << 20;       // of the counts of touches, per block

std::string HeaderBytes(const RowsFileHeader& header) {
  std::string out(kMagic);
  AppendLittle<uint32_t>(header.compressed ? kCompressedVersion : kVersion, &out);
  AppendLittle<uint32_t>((header.hashed ? kHashed : 0) | (header.compressed ? kCompressed : 0),
                         &out);
  AppendLittle<uint32_t>(header.weight_bytes, &out);
  AppendLittle<uint32_t>(header.payload_bytes, &out);
  AppendLittle<uint32_t>(0, &out);
  AppendLittle<uint32_t>(Crc32c(out.data(), out.size()), &out);
  return out;
}

std::string IndexBytes(const std::vector<RowsFileEntry>& index) {
  std::string out;
  out.reserve(index.size() * kEntryBytes);
  for (const RowsFileEntry& entry : index) {
    AppendLittle<uint64_t>(entry.offset, &out);
    AppendLittle<uint32_t>(entry.bytes, &out);
    AppendLittle<uint32_t>(entry.crc, &out);
    AppendLittle<uint32_t>(static_cast<uint32_t>(entry.kind), &out);
    AppendLittle<uint32_t>(entry.pass, &out);
    AppendLittle<uint32_t>(entry.count, &out);
    AppendLittle<uint32_t>(0, &out);
    AppendLittle<uint64_t>(entry.first_position, &out);
    AppendLittle<uint64_t>(entry.last_position, &out);
  }
  return out;
}

std::string TrailerBytes(uint64_t index_offset, absl::string_view index) {
  std::string out;
  AppendLittle<uint64_t>(index_offset, &out);
  AppendLittle<uint32_t>(static_cast<uint32_t>(index.size()), &out);
  AppendLittle<uint32_t>(Crc32c(index.data(), index.size()), &out);
  out.append(std::string(kEnd));
  return out;
}

template <typename T>
absl::string_view AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

// --- writing

absl::StatusOr<std::unique_ptr<RowsFileWriter>> RowsFileWriter::Create(const std::string& path,
                                                                       const RowsFileHeader& header,
                                                                       Place* place) {
  HOTBED_ASSIGN_OR_RETURN(auto file, place->Create(path));
  std::unique_ptr<RowsFileWriter> writer(new RowsFileWriter(header, std::move(file)));
  HOTBED_RETURN_IF_ERROR(writer->Append({HeaderBytes(header)}));
  return writer;
}

absl::Status RowsFileWriter::Append(std::vector<absl::string_view> pieces) {
  for (const absl::string_view piece : pieces) bytes_ += piece.size();
  return file_->Append(pieces);
}

absl::Status RowsFileWriter::AddBlock(RowsFileEntry entry, std::vector<absl::string_view> pieces,
                                      uint32_t packing) {
  std::string head(4, '\0');
  AppendLittle<uint32_t>(static_cast<uint32_t>(entry.kind), &head);
  AppendLittle<uint32_t>(entry.count, &head);
  AppendLittle<uint32_t>(packing, &head);
  entry.crc = Crc32c(head.data() + 4, head.size() - 4);
  uint64_t bytes = head.size();
  for (const absl::string_view piece : pieces) {
    entry.crc = Crc32c(piece.data(), piece.size(), entry.crc);
    bytes += piece.size();
  }
  StoreLittle<uint32_t>(head.data(), entry.crc);
  entry.offset = bytes_;
  entry.bytes = static_cast<uint32_t>(bytes);
  entry.pass = pass_;
  index_.push_back(entry);
  pieces.insert(pieces.begin(), head);
  return Append(std::move(pieces));
}

RowsFileEntry RowsFileWriter::EntryOf(RowsFileBlock kind, absl::Span<const uint64_t> ids) const {
  RowsFileEntry entry;
  entry.kind = kind;
  entry.count = static_cast<uint32_t>(ids.size());
  entry.first_position = header_.hashed ? Mix64(ids.front()) : ids.front();
  entry.last_position = header_.hashed ? Mix64(ids.back()) : ids.back();
  return entry;
}

absl::Status RowsFileWriter::AddRows(absl::Span<const uint64_t> ids,
                                     absl::Span<const uint8_t> payloads) {
  if (ids.empty()) return absl::OkStatus();
  const RowsFileEntry entry = EntryOf(RowsFileBlock::kRows, ids);
  rows_ += ids.size();
  if (header_.compressed) {
    const absl::string_view packed = packer_.Pack(AsBytes(ids), AsBytes(payloads));
    if (!packed.empty()) return AddBlock(entry, {packed}, kPacked);
  }
  return AddBlock(entry, {AsBytes(ids), AsBytes(payloads)});
}

absl::Status RowsFileWriter::AddDeleted(absl::Span<const uint64_t> ids) {
  if (ids.empty()) return absl::OkStatus();
  deleted_ += ids.size();
  return AddBlock(EntryOf(RowsFileBlock::kDeleted, ids), {AsBytes(ids)});
}

absl::Status RowsFileWriter::AddSessions(absl::string_view bytes) {
  RowsFileEntry entry;
  entry.kind = RowsFileBlock::kSessions;
  entry.count = static_cast<uint32_t>(bytes.size());
  return AddBlock(entry, {bytes});
}

absl::Status RowsFileWriter::AddTouchFilter(absl::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPartBytesMax))) {
    RowsFileEntry entry;
    entry.kind = RowsFileBlock::kTouchFilter;
    const absl::string_view part = bytes.substr(0, kPartBytesMax);
    entry.count = static_cast<uint32_t>(part.size());
    HOTBED_RETURN_IF_ERROR(AddBlock(entry, {part}));
  }
  return absl::OkStatus();
}

absl::Status RowsFileWriter::Finish() {
  const std::string index = IndexBytes(index_);
  index_crc_ = Crc32c(index.data(), index.size());
  HOTBED_RETURN_IF_ERROR(Append({index, TrailerBytes(bytes_, index)}));
  return file_->Finish();
}

// --- reading

absl::StatusOr<std::unique_ptr<RowsFileReader>> RowsFileReader::Open(const std::string& path,
                                                                     uint64_t bytes,
                                                                     uint32_t index_crc,
                                                                     Place* place) {
  HOTBED_ASSIGN_OR_RETURN(auto file, place->Open(path));
  std::unique_ptr<RowsFileReader> reader(new RowsFileReader(path, std::move(file)));
  HOTBED_RETURN_IF_ERROR(reader->ReadHeader());
  HOTBED_RETURN_IF_ERROR(reader->ReadIndex(bytes, index_crc));
  return reader;
}

absl::Status RowsFileReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, ": ", what));
}

absl::Status RowsFileReader::ReadBytes(uint64_t offset, uint64_t bytes, std::string* out) {
  out->resize(bytes);
  HOTBED_ASSIGN_OR_RETURN(const uint64_t got, file_->ReadAt(offset, bytes, out->data()));
  if (got == bytes) return absl::OkStatus();
  return Damaged(absl::StrCat("it ends at byte ", offset + got, ", wanted were ", bytes, " from ",
                              offset, " on"));
}

absl::Status RowsFileReader::ReadHeader() {
  std::string bytes;
  HOTBED_RETURN_IF_ERROR(ReadBytes(0, kHeaderBytes, &bytes));
  if (bytes.substr(0, kMagic.size()) != kMagic) return Damaged("it does not begin with HOTBDROW");
  ByteReader in(absl::string_view(bytes).substr(kMagic.size()));
  const uint32_t version = in.Take<uint32_t>();
  const uint32_t flags = in.Take<uint32_t>();
  header_.hashed = (flags & kHashed) != 0;
  header_.compressed = (flags & kCompressed) != 0;
  header_.weight_bytes = in.Take<uint32_t>();
  header_.payload_bytes = in.Take<uint32_t>();
  in.Take<uint32_t>();
  if (in.Take<uint32_t>() != Crc32c(bytes.data(), kHeaderBytes - 4)) {
    return Damaged("the checksum of its header does not match");
  }
  if (version == kVersion || version == kCompressedVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path_, ": version ", version,
                                                    ", this program reads ", kVersion, " and ",
                                                    kCompressedVersion));
}

absl::Status RowsFileReader::ReadIndex(uint64_t bytes, uint32_t index_crc) {
  const uint64_t size = file_->size();
  if (size != bytes || size < kHeaderBytes + kTrailerBytes) {
    return Damaged(absl::StrCat("it has ", size, " bytes, the manifest says ", bytes));
  }
  std::string trailer;
  HOTBED_RETURN_IF_ERROR(ReadBytes(size - kTrailerBytes, kTrailerBytes, &trailer));
  ByteReader end(trailer);
  const uint64_t offset = end.Take<uint64_t>();
  const uint32_t index_bytes = end.Take<uint32_t>();
  const uint32_t crc = end.Take<uint32_t>();
  if (trailer.substr(16) != kEnd || index_bytes % kEntryBytes != 0 || offset > size ||
      offset + index_bytes + kTrailerBytes != size) {
    return Damaged("it does not end with an index");
  }
  std::string index;
  HOTBED_RETURN_IF_ERROR(ReadBytes(offset, index_bytes, &index));
  if (crc != index_crc || Crc32c(index.data(), index.size()) != crc) {
    return Damaged("the checksum of its index does not match the manifest");
  }
  index_crc_ = crc;
  ByteReader in(index);
  while (in.left() > 0) {
    RowsFileEntry& entry = index_.emplace_back();
    entry.offset = in.Take<uint64_t>();
    entry.bytes = in.Take<uint32_t>();
    entry.crc = in.Take<uint32_t>();
    entry.kind = static_cast<RowsFileBlock>(in.Take<uint32_t>());
    entry.pass = in.Take<uint32_t>();
    entry.count = in.Take<uint32_t>();
    in.Take<uint32_t>();
    entry.first_position = in.Take<uint64_t>();
    entry.last_position = in.Take<uint64_t>();
  }
  return absl::OkStatus();
}

absl::Status RowsFileReader::ReadBlock(const RowsFileEntry& entry) {
  if (entry.bytes < kBlockHeadBytes || entry.bytes > kBlockBytesMax) {
    return Damaged(
        absl::StrCat("the block at byte ", entry.offset, " has ", entry.bytes, " bytes"));
  }
  HOTBED_RETURN_IF_ERROR(ReadBytes(entry.offset, entry.bytes, &block_));
  const uint32_t crc = Crc32c(block_.data() + 4, block_.size() - 4);
  if (crc != entry.crc || LoadLittle<uint32_t>(block_.data()) != crc) {
    return Damaged(
        absl::StrCat("the checksum of the block at byte ", entry.offset, " does not match"));
  }
  const bool same = LoadLittle<uint32_t>(block_.data() + 4) == static_cast<uint32_t>(entry.kind) &&
                    LoadLittle<uint32_t>(block_.data() + 8) == entry.count;
  if (same) return absl::OkStatus();
  return Damaged(absl::StrCat("the block at byte ", entry.offset, " is not that of the index"));
}

uint64_t RowsFileReader::PlainBytes(const RowsFileEntry& entry) const {
  const uint64_t payload = entry.kind == RowsFileBlock::kDeleted ? 0 : header_.payload_bytes;
  return kBlockHeadBytes + entry.count * (kIdBytes + payload);
}

absl::Status RowsFileReader::Unpack(const RowsFileEntry& entry) {
  const uint64_t bytes = PlainBytes(entry);
  if (bytes > kBlockBytesMax) {
    return Damaged(absl::StrCat("the block at byte ", entry.offset, " has ", bytes, " bytes"));
  }
  plain_.resize(bytes);
  if (!UnpackBlock(absl::string_view(block_).substr(kBlockHeadBytes),
                   absl::MakeSpan(plain_).subspan(kBlockHeadBytes))) {
    return Damaged(absl::StrCat("the block at byte ", entry.offset,
                                " cannot be decompressed to its ", entry.count, " rows"));
  }
  block_.swap(plain_);
  return absl::OkStatus();
}

absl::Status RowsFileReader::ReadRows(const RowsFileEntry& entry, std::vector<uint64_t>* ids,
                                      std::vector<uint8_t>* payloads) {
  HOTBED_RETURN_IF_ERROR(ReadBlock(entry));
  const uint64_t rows = entry.count;
  const uint32_t packing = LoadLittle<uint32_t>(block_.data() + 12);
  if (packing == kPacked && header_.compressed) {
    HOTBED_RETURN_IF_ERROR(Unpack(entry));
  } else if (packing != 0) {
    return Damaged(
        absl::StrCat("the block at byte ", entry.offset, " has the unknown packing ", packing));
  }
  if (block_.size() != PlainBytes(entry)) {
    return Damaged(
        absl::StrCat("the block at byte ", entry.offset, " does not fit its ", rows, " rows"));
  }
  ids->resize(rows);
  payloads->resize(block_.size() - kBlockHeadBytes - rows * kIdBytes);
  std::memcpy(ids->data(), block_.data() + kBlockHeadBytes, rows * kIdBytes);
  std::memcpy(payloads->data(), block_.data() + kBlockHeadBytes + rows * kIdBytes,
              payloads->size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> RowsFileReader::ReadSessions() {
  for (const RowsFileEntry& entry : index_) {
    if (entry.kind != RowsFileBlock::kSessions) continue;
    HOTBED_RETURN_IF_ERROR(ReadBlock(entry));
    return block_.substr(kBlockHeadBytes);
  }
  return std::string();
}

absl::StatusOr<std::string> RowsFileReader::ReadTouchFilter() {
  std::string bytes;
  for (const RowsFileEntry& entry : index_) {
    if (entry.kind != RowsFileBlock::kTouchFilter) continue;
    HOTBED_RETURN_IF_ERROR(ReadBlock(entry));
    bytes.append(block_, kBlockHeadBytes);
  }
  return bytes;
}

absl::Status RowsFileReader::VisitBytes(
    absl::FunctionRef<absl::Status(absl::string_view bytes)> visit) {
  HOTBED_RETURN_IF_ERROR(visit(HeaderBytes(header_)));
  uint64_t offset = kHeaderBytes;
  for (const RowsFileEntry& entry : index_) {
    if (entry.offset != offset) {
      return Damaged(absl::StrCat("its blocks leave a gap at byte ", offset));
    }
    HOTBED_RETURN_IF_ERROR(ReadBlock(entry));
    HOTBED_RETURN_IF_ERROR(visit(block_));
    offset += entry.bytes;
  }
  const std::string index = IndexBytes(index_);
  const std::string trailer = TrailerBytes(offset, index);
  if (offset + index.size() + trailer.size() != file_->size() ||
      Crc32c(index.data(), index.size()) != index_crc_) {
    return Damaged("its blocks do not end at the index");
  }
  return visit(absl::StrCat(index, trailer));
}

}  // namespace hotbed
