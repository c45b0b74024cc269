#include "proto/wire.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "google/protobuf/io/coded_stream.h"

namespace hotbed {
namespace {

using google::protobuf::MessageLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// The nesting limit of groups of unknown fields, counted from the outer message; as in protobuf.
constexpr int kDepthMax = 100;
constexpr uint32_t kHeaderField = 1;

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kDelimited = 2,
  kGroupBegin = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

// A position in a message; never runs over the end.
class Cursor {
 public:
  explicit Cursor(Fragments fragments) : fragments_(fragments) {
    for (const Fragment& f : fragments) left_ += f.size();
    SkipEmpty();
  }

  uint64_t left() const { return left_; }
  uint64_t position() const { return position_; }

  // Reads at most `bytes_max` bytes: 5 for tags and lengths, 10 for values, as protobuf does.
  // False: truncated or too long.
  bool ReadVarint(int bytes_max, uint64_t* value) {
    *value = 0;
    for (int i = 0; i < bytes_max && left_ > 0; ++i) {
      const uint8_t byte = fragments_[fragment_][offset_];
      Skip(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Skip(uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    position_ += bytes;
    while (bytes > 0) {
      const uint64_t here = std::min<uint64_t>(bytes, fragments_[fragment_].size() - offset_);
      offset_ += here;
      bytes -= here;
      SkipEmpty();
    }
    return true;
  }

  FragmentRange Range(uint64_t bytes) const {
    return {.fragment = fragment_, .offset = offset_, .bytes = bytes, .present = true};
  }

 private:
  void SkipEmpty() {
    while (fragment_ < fragments_.size() && offset_ == fragments_[fragment_].size()) {
      ++fragment_;
      offset_ = 0;
    }
  }

  Fragments fragments_;
  size_t fragment_ = 0;
  size_t offset_ = 0;
  uint64_t left_ = 0;
  uint64_t position_ = 0;
};

absl::Status Malformed(absl::string_view message, const Cursor& cursor, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed ", message, " at byte ", cursor.position(), ": ", what));
}

// A tag has 32 bits; protobuf drops the excess bits of a fifth byte.
bool ReadTag(Cursor* cursor, uint32_t* tag) {
  uint64_t value;
  if (!cursor->ReadVarint(5, &value)) return false;
  *tag = static_cast<uint32_t>(value);
  return *tag >> 3 != 0;
}

bool ReadLength(Cursor* cursor, uint64_t* length) {
  return cursor->ReadVarint(5, length) && *length <= cursor->left();
}

// Skips the value of a field whose tag was read.
bool SkipField(Cursor* cursor, uint32_t tag) {
  uint32_t open[kDepthMax];  // the field numbers of the groups around the cursor
  int depth = 0;
  do {
    uint64_t value;
    switch (tag & 7) {
      case kVarint:
        if (!cursor->ReadVarint(10, &value)) return false;
        break;
      case kFixed64:
        if (!cursor->Skip(8)) return false;
        break;
      case kDelimited:
        if (!ReadLength(cursor, &value) || !cursor->Skip(value)) return false;
        break;
      case kGroupBegin:
        if (depth == kDepthMax) return false;
        open[depth++] = tag >> 3;
        break;
      case kGroupEnd:
        if (depth == 0 || open[--depth] != tag >> 3) return false;
        break;
      case kFixed32:
        if (!cursor->Skip(4)) return false;
        break;
      default:
        return false;
    }
  } while (depth > 0 && ReadTag(cursor, &tag));
  return depth == 0;
}

bool MergeHeader(Fragments fragments, const FragmentRange& range, MessageLite* header) {
  FragmentReader reader(fragments, range);
  WireScratch scratch;
  const uint8_t* const bytes = reader.Contiguous(range.bytes, 1, &scratch);
  CodedInputStream input(bytes, static_cast<int>(range.bytes));
  input.SetRecursionLimit(kDepthMax - 1);  // the outer message is one level
  return header->MergeFromCodedStream(&input) && input.ConsumedEntireMessage();
}

struct BulkField {
  uint32_t number;
  FragmentRange* range;
};

absl::Status ParseMessage(absl::string_view name, Fragments fragments, MessageLite* header,
                          absl::Span<const BulkField> bulk) {
  header->Clear();
  for (const BulkField& field : bulk) *field.range = FragmentRange();
  Cursor cursor(fragments);
  while (cursor.left() > 0) {
    uint32_t tag;
    if (!ReadTag(&cursor, &tag)) return Malformed(name, cursor, "bad tag");
    const uint32_t number = tag >> 3;
    const auto known = std::find_if(bulk.begin(), bulk.end(),
                                    [&](const BulkField& f) { return f.number == number; });
    if ((tag & 7) != kDelimited || (number != kHeaderField && known == bulk.end())) {
      if (!SkipField(&cursor, tag)) {
        return Malformed(name, cursor, absl::StrCat("bad value of unknown field ", number));
      }
      continue;
    }
    uint64_t length;
    if (!ReadLength(&cursor, &length)) {
      return Malformed(name, cursor, absl::StrCat("field ", number, " is truncated"));
    }
    const FragmentRange range = cursor.Range(length);
    if (number == kHeaderField) {
      if (!MergeHeader(fragments, range, header)) return Malformed(name, cursor, "bad header");
    } else if (known->range->present) {
      return Malformed(name, cursor, absl::StrCat("bulk field ", number, " occurs twice"));
    } else {
      *known->range = range;
    }
    cursor.Skip(length);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParsePullRequest(Fragments message, PullRequestView* view) {
  return ParseMessage("PullRequest", message, &view->header,
                      {{v1::PullRequest::kIdsFieldNumber, &view->ids},
                       {v1::PullRequest::kLengthsFieldNumber, &view->lengths},
                       {v1::PullRequest::kWeightsFieldNumber, &view->weights}});
}

absl::Status ParsePullReply(Fragments message, PullReplyView* view) {
  return ParseMessage("PullReply", message, &view->header,
                      {{v1::PullReply::kRowsFieldNumber, &view->rows},
                       {v1::PullReply::kFlagsFieldNumber, &view->flags},
                       {v1::PullReply::kArgMaxFieldNumber, &view->arg_max}});
}

absl::Status ParsePushRequest(Fragments message, PushRequestView* view) {
  return ParseMessage("PushRequest", message, &view->header,
                      {{v1::PushRequest::kIdsFieldNumber, &view->ids},
                       {v1::PushRequest::kGradientsFieldNumber, &view->gradients}});
}

absl::Status ParseTransferMessage(Fragments message, TransferView* view) {
  return ParseMessage("TransferMessage", message, &view->header,
                      {{v1::TransferMessage::kBodyFieldNumber, &view->body}});
}

uint8_t* WireScratch::Allocate(size_t bytes) {
  constexpr size_t kBlockBytesMin = 4096;
  bytes = (bytes + 15) & ~size_t{15};
  if (blocks_.empty() || blocks_.back().size - used_ < bytes) {
    const size_t size = std::max(bytes, kBlockBytesMin);
    blocks_.push_back({std::unique_ptr<uint8_t[]>(new uint8_t[size]), size});
    used_ = 0;
  }
  uint8_t* const memory = blocks_.back().memory.get() + used_;
  used_ += bytes;
  return memory;
}

void WireScratch::Clear() {
  if (blocks_.size() > 1) blocks_.erase(blocks_.begin(), blocks_.end() - 1);
  used_ = 0;
}

FragmentReader::FragmentReader(Fragments fragments, const FragmentRange& range)
    : fragments_(fragments), fragment_(range.fragment), offset_(range.offset), left_(range.bytes) {
  SkipEmptyFragments();
}

void FragmentReader::SkipEmptyFragments() {
  while (fragment_ < fragments_.size() && offset_ == fragments_[fragment_].size()) {
    ++fragment_;
    offset_ = 0;
  }
}

size_t FragmentReader::LeftHere() const {
  if (left_ == 0) return 0;
  return std::min<uint64_t>(left_, fragments_[fragment_].size() - offset_);
}

void FragmentReader::Advance(size_t bytes) {
  offset_ += bytes;
  left_ -= bytes;
  SkipEmptyFragments();
}

void FragmentReader::CopyTo(void* to, size_t bytes) {
  HOTBED_CHECK(bytes <= left_) << bytes << " of " << left_ << " bytes left";
  uint8_t* out = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    const size_t here = std::min(bytes, LeftHere());
    std::memcpy(out, fragments_[fragment_].data() + offset_, here);
    Advance(here);
    out += here;
    bytes -= here;
  }
}

void FragmentReader::Skip(uint64_t bytes) {
  HOTBED_CHECK(bytes <= left_) << bytes << " of " << left_ << " bytes left";
  while (bytes > 0) {
    const size_t here = std::min<uint64_t>(bytes, LeftHere());
    Advance(here);
    bytes -= here;
  }
}

const uint8_t* FragmentReader::Contiguous(size_t bytes, size_t alignment, WireScratch* scratch) {
  HOTBED_CHECK(bytes <= left_) << bytes << " of " << left_ << " bytes left";
  if (bytes > 0 && bytes <= LeftHere()) {
    const uint8_t* const in_place = fragments_[fragment_].data() + offset_;
    if ((reinterpret_cast<uintptr_t>(in_place) & (alignment - 1)) == 0) {
      Advance(bytes);
      return in_place;
    }
  }
  uint8_t* const copy = scratch->Allocate(bytes);
  CopyTo(copy, bytes);
  return copy;
}

void FragmentReader::RowPointers(size_t row_bytes, size_t rows, const uint8_t** out,
                                 WireScratch* scratch) {
  HOTBED_CHECK(row_bytes > 0 && rows <= left_ / row_bytes)
      << rows << " rows of " << row_bytes << " bytes, " << left_ << " bytes left";
  while (rows > 0) {
    const size_t whole = std::min(rows, LeftHere() / row_bytes);
    if (whole == 0) {
      uint8_t* const copy = scratch->Allocate(row_bytes);
      CopyTo(copy, row_bytes);
      *out++ = copy;
      --rows;
      continue;
    }
    const uint8_t* row = fragments_[fragment_].data() + offset_;
    for (size_t i = 0; i < whole; ++i, row += row_bytes) *out++ = row;
    Advance(whole * row_bytes);
    rows -= whole;
  }
}

size_t BulkTagBytes(int field, uint64_t payload_bytes) {
  return CodedOutputStream::VarintSize32(static_cast<uint32_t>(field) << 3 | kDelimited) +
         CodedOutputStream::VarintSize64(payload_bytes);
}

size_t HeaderFieldBytes(const MessageLite& header) {
  const size_t bytes = header.ByteSizeLong();
  return BulkTagBytes(kHeaderField, bytes) + bytes;
}

uint8_t* WriteBulkTag(int field, uint64_t payload_bytes, uint8_t* to) {
  to = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(field) << 3 | kDelimited, to);
  return CodedOutputStream::WriteVarint64ToArray(payload_bytes, to);
}

void AppendBulkTag(int field, uint64_t payload_bytes, std::string* out) {
  uint8_t buffer[15];
  const uint8_t* const end = WriteBulkTag(field, payload_bytes, buffer);
  out->append(reinterpret_cast<const char*>(buffer), end - buffer);
}

uint8_t* WriteHeaderField(const MessageLite& header, uint8_t* to) {
  to = WriteBulkTag(kHeaderField, header.GetCachedSize(), to);
  return header.SerializeWithCachedSizesToArray(to);
}

void AppendHeaderField(const MessageLite& header, std::string* out) {
  const size_t before = out->size();
  out->resize(before + HeaderFieldBytes(header));
  WriteHeaderField(header, reinterpret_cast<uint8_t*>(&(*out)[before]));
}

}  // namespace hotbed
