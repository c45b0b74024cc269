#include "server/shard_log/segment_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

constexpr uint64_t kWindowBytes = 4ull << 20;

}  // namespace

SegmentReader::SegmentReader(FileSystem* files, std::string path, uint64_t file_bytes)
    : files_(files), path_(std::move(path)), file_bytes_(file_bytes) {
  const absl::string_view name = absl::string_view(path_).substr(path_.rfind('/') + 1);
  number_ = ParseSegmentName(name).value_or(0);
}

absl::StatusOr<const char*> SegmentReader::Load(uint64_t offset, uint64_t bytes) {
  if (offset < window_offset_ || offset + bytes > window_offset_ + window_bytes_) {
    if (bytes > window_capacity_) {
      window_capacity_ = std::max(bytes, std::min(kWindowBytes, file_bytes_));
      // Not zeroed: only bytes that were read are used.
      window_.reset(new uint64_t[window_capacity_ / 8 + 1]);
    }
    const uint64_t wanted = std::min(window_capacity_, file_bytes_ - offset);
    char* out = reinterpret_cast<char*>(window_.get());
    HOTBED_ASSIGN_OR_RETURN(const uint64_t got, files_->ReadAt(path_, offset, wanted, out));
    window_offset_ = offset;
    window_bytes_ = got;
    if (got < bytes) {
      return absl::DataLossError(absl::StrCat(path_, " ends at ", offset + got, " and had ",
                                              file_bytes_, " bytes a moment ago"));
    }
  }
  return reinterpret_cast<const char*>(window_.get()) + (offset - window_offset_);
}

absl::StatusOr<SegmentHeader> SegmentReader::ReadHeader() {
  HOTBED_ASSIGN_OR_RETURN(const SegmentHeader header, ReadSegmentHeader(path_, files_));
  if (header.sequence == number_) number_ = header.number();
  return header;
}

absl::StatusOr<bool> SegmentReader::OnlyZerosFrom(uint64_t offset) {
  while (offset < file_bytes_) {
    const uint64_t step = std::min<uint64_t>(file_bytes_ - offset, 64 << 10);
    HOTBED_ASSIGN_OR_RETURN(const char* bytes, Load(offset, step));
    if (std::any_of(bytes, bytes + step, [](char c) { return c != 0; })) return false;
    offset += step;
  }
  return true;
}

absl::StatusOr<SegmentReader::Found> SegmentReader::Next() {
  if (part_next_ < parts_.size()) return TakePart();
  begin_ = offset_ = next_offset_;
  parts_.clear();
  part_next_ = 0;
  bad_payload_ = false;
  bad_parts_.clear();
  if (offset_ >= file_bytes_) return Found::kEnd;
  const uint64_t left = file_bytes_ - offset_;
  raw_length_ = 0;
  if (left < kRecordHeaderBytes) return Found::kCutShort;
  HOTBED_ASSIGN_OR_RETURN(const char* bytes, Load(offset_, kRecordHeaderBytes));
  if (const auto group = DecodeGroupHeader(bytes, number_)) return NextGroup(*group, left);
  const std::optional<DecodedHeader> decoded = DecodeRecordHeader(bytes, number_);
  if (!decoded.has_value()) {
    raw_length_ = LikelyGroupLength(bytes, number_).value_or(LikelyRecordLength(bytes, number_));
    if (raw_length_ != 0) return Found::kBadHeader;
    HOTBED_ASSIGN_OR_RETURN(const bool zeros, OnlyZerosFrom(offset_));
    return zeros ? Found::kZeros : Found::kBadHeader;
  }
  if (decoded->length > left) return Found::kCutShort;
  HOTBED_ASSIGN_OR_RETURN(bytes, Load(offset_, decoded->length));
  next_offset_ = offset_ + decoded->length;
  if (!PayloadIntact(*decoded, bytes)) {
    bad_payload_ = true;
    bad_parts_.push_back(decoded->header);
    return Found::kBadPayload;
  }
  origin_ = decoded->origin;
  header_crc_ = decoded->header_crc;
  view_.header = decoded->header;
  view_.ids = reinterpret_cast<const uint64_t*>(bytes + kRecordHeaderBytes);
  view_.gradients = reinterpret_cast<const uint8_t*>(view_.ids + view_.header.id_count);
  return Found::kRecord;
}

absl::StatusOr<SegmentReader::Found> SegmentReader::NextGroup(const GroupHeader& group,
                                                              uint64_t left) {
  if (group.length > left) return Found::kCutShort;
  HOTBED_ASSIGN_OR_RETURN(const char* const bytes, Load(offset_, group.length));
  next_offset_ = offset_ + group.length;
  origin_ = group.origin;
  header_crc_ = group.header_crc;
  if (!DecodeGroup(group, bytes, &parts_)) {
    parts_.clear();
    bad_payload_ = true;
    return Found::kBadPayload;
  }
  for (const GroupPart& part : parts_) {
    if (!part.intact) bad_parts_.push_back(part.header);
  }
  if (PlantedBug("last_part_of_group_skipped")) parts_.pop_back();
  if (bad_parts_.empty()) return TakePart();
  bad_payload_ = true;
  const auto damaged = [](const GroupPart& part) { return !part.intact; };
  parts_.erase(std::remove_if(parts_.begin(), parts_.end(), damaged), parts_.end());
  return Found::kBadPayload;
}

SegmentReader::Found SegmentReader::TakePart() {
  const GroupPart& part = parts_[part_next_++];
  offset_ = begin_ + part.at;
  view_.header = part.header;
  view_.ids = part.ids;
  view_.gradients = part.gradients;
  return Found::kRecord;
}

absl::StatusOr<bool> SegmentReader::SkipDamage() {
  if (bad_payload_) return part_next_ < parts_.size() || next_offset_ < file_bytes_;
  HOTBED_ASSIGN_OR_RETURN(const Place found, FindHeader(offset_ + 8));
  if (found.length == 0) return false;
  next_offset_ = found.offset;
  return true;
}

absl::StatusOr<SegmentReader::Place> SegmentReader::FindHeader(uint64_t at) {
  for (; at + kRecordHeaderBytes <= file_bytes_; at += 8) {
    HOTBED_ASSIGN_OR_RETURN(const char* bytes, Load(at, kRecordHeaderBytes));
    if (const auto record = DecodeRecordHeader(bytes, number_)) return Place{at, record->length};
    if (const auto group = DecodeGroupHeader(bytes, number_)) return Place{at, group->length};
  }
  return Place();
}

absl::StatusOr<uint64_t> SegmentReader::EndBehind(uint64_t offset) {
  uint64_t end = 0;
  while (true) {
    HOTBED_ASSIGN_OR_RETURN(const Place found, FindHeader(offset));
    if (found.length == 0) return end;
    offset = end = std::min(found.offset + found.length, file_bytes_);
  }
}

}  // namespace hotbed
