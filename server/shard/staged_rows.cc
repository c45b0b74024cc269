#include "server/shard/staged_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/files/crc32c.h"
#include "row_math/half.h"
#include "row_math/touches.h"
#include "server/protocol/shard_core.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {
namespace {

constexpr uint64_t kPushOverheadBytes = 192;  // the map's node and the header

uint64_t StepOf(const RecordHeader& header) { return header.seq >> kStepShift; }

float ElementAt(const uint8_t* row, RowType type, uint32_t column) {
  if (type == RowType::kFp32) {
    float value;
    std::memcpy(&value, row + 4 * column, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * column, 2);
  return type == RowType::kFp16 ? Fp16ToFloat(bits) : Bf16ToFloat(bits);
}

}  // namespace

uint64_t StagedRows::BytesOf(const RecordHeader& header) {
  return kPushOverheadBytes + 8ull * header.id_count + GradientBytes(header);
}

void StagedRows::Add(const RecordHeader& header, const uint64_t* ids,
                     const uint8_t* const* gradients) {
  Push& push = pushes_[header.lsn];
  push.header = header;
  push.ids.assign(ids, ids + header.id_count);
  push.gradients.reset(new uint8_t[GradientBytes(header)]);
  const uint64_t row_bytes = GradientRowBytes(header);
  for (uint32_t i = 0; i < header.id_count; ++i) {
    std::memcpy(push.gradients.get() + i * row_bytes, gradients[i], row_bytes);
  }
  bytes_.Set(bytes() + BytesOf(header));
}

const RecordHeader* StagedRows::AnyOf(uint64_t step) const {
  for (const auto& [lsn, push] : pushes_) {
    if (StepOf(push.header) == step) return &push.header;
  }
  return nullptr;
}

SummedRows StagedRows::Sum(absl::Span<const Lsn> lsns, uint32_t dim) const {
  SummedRows sum;
  sum.shows = std::any_of(lsns.begin(), lsns.end(),
                          [this](Lsn lsn) { return pushes_.at(lsn).header.shows; });
  const uint32_t width = dim + (sum.shows ? kShowBytes / sizeof(float) : 0);
  absl::flat_hash_map<uint64_t, size_t> places;
  for (const Lsn lsn : lsns) {
    const Push& push = pushes_.at(lsn);
    const RowType type = push.header.gradient_type;
    const uint64_t row_bytes = GradientRowBytes(push.header);
    for (size_t i = 0; i < push.ids.size(); ++i) {
      const uint8_t* row = push.gradients.get() + i * row_bytes;
      const auto [it, first] = places.try_emplace(push.ids[i], sum.ids.size());
      if (first) {
        sum.ids.push_back(push.ids[i]);
        for (uint32_t c = 0; c < dim; ++c) sum.gradients.push_back(ElementAt(row, type, c));
        sum.gradients.resize(sum.gradients.size() + width - dim);
      } else {
        float* to = sum.gradients.data() + it->second * width;
        for (uint32_t c = 0; c < dim; ++c) to[c] += ElementAt(row, type, c);
      }
      if (!push.header.shows) continue;
      float* const to = sum.gradients.data() + it->second * width + dim;
      const RowShows more = LoadShows(row + RowWireBytes(type, dim));
      to[0] += more.shows;
      to[1] += more.clicks;
    }
  }
  for (size_t i = 0; i < sum.ids.size(); ++i) {
    sum.pointers.push_back(reinterpret_cast<const uint8_t*>(sum.gradients.data() + i * width));
  }
  return sum;
}

std::map<Lsn, StagedRows::Push>::iterator StagedRows::Erase(std::map<Lsn, Push>::iterator it) {
  bytes_.Set(bytes() - BytesOf(it->second.header));
  return pushes_.erase(it);
}

void StagedRows::CutFrom(Lsn lsn) {
  for (auto it = pushes_.lower_bound(lsn); it != pushes_.end();) it = Erase(it);
}

void StagedRows::DropThrough(uint64_t step, Lsn lsn) {
  for (auto it = pushes_.begin(); it != pushes_.end() && it->first < lsn;) {
    it = StepOf(it->second.header) <= step ? Erase(it) : std::next(it);
  }
}

void StagedRows::Clear() { CutFrom(0); }

void StagedRows::AddIds(absl::flat_hash_set<uint64_t>* ids) const {
  for (const auto& [lsn, push] : pushes_) ids->insert(push.ids.begin(), push.ids.end());
}

std::string StagedRows::Serialize(Lsn lsn) const {
  const Push& push = pushes_.at(lsn);
  const uint64_t length = RecordBytes(push.header);
  std::string record(length, '\0');
  char* at = record.data() + kRecordHeaderBytes;
  std::memcpy(at, push.ids.data(), 8 * push.ids.size());
  std::memcpy(at + 8 * push.ids.size(), push.gradients.get(), GradientBytes(push.header));
  const uint32_t crc = Crc32c(at, length - kRecordHeaderBytes);
  EncodeRecordHeader(push.header, crc, {}, record.data());
  return record;
}

absl::Status StagedRows::Restore(absl::string_view record,
                                 absl::FunctionRef<bool(uint64_t id)> wanted) {
  std::optional<DecodedHeader> decoded;
  if (record.size() >= kRecordHeaderBytes) decoded = DecodeRecordHeader(record.data());
  if (!decoded.has_value() || decoded->length != record.size() ||
      !PayloadIntact(*decoded, record.data())) {
    return absl::DataLossError(
        absl::StrCat("a staged push of ", record.size(), " bytes in the shard's meta is damaged"));
  }
  RecordHeader header = decoded->header;
  std::vector<uint64_t> ids(header.id_count);
  const char* at = record.data() + kRecordHeaderBytes;
  std::memcpy(ids.data(), at, 8 * ids.size());
  std::vector<const uint8_t*> rows(header.id_count);
  const uint64_t row_bytes = GradientRowBytes(header);
  for (uint32_t i = 0; i < header.id_count; ++i) {
    rows[i] = reinterpret_cast<const uint8_t*>(at + 8 * ids.size()) + i * row_bytes;
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < header.id_count; ++i) {
    if (!wanted(ids[i])) continue;
    ids[kept] = ids[i];
    rows[kept++] = rows[i];
  }
  header.id_count = kept;
  Add(header, ids.data(), rows.data());
  return absl::OkStatus();
}

}  // namespace hotbed
