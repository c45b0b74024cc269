#include "server/tiers/memory/touch_filter.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files/byte_order.h"
#include "common/files/byte_reader.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint64_t kPieceHeadBytes = 16;
constexpr uint64_t kSavedBlockBytes = 4 + kFilterBlockBytes;

bool IsZero(const uint8_t* block) {
  uint64_t any = 0;
  for (uint32_t at = 0; at < kFilterBlockBytes; at += 8) {
    uint64_t word;
    std::memcpy(&word, block + at, sizeof(word));
    any |= word;
  }
  return any == 0;
}

}  // namespace

TouchFilter::TouchFilter(const TableSpec& table, const ShardRange& range)
    : shape_(TouchFilterShapeOf(table)),
      needed_(table.life.admission.after),
      buckets_(range.limit - range.first),
      first_block_(static_cast<uint32_t>(range.first * shape_.blocks_per_bucket)),
      memory_(std::calloc(bytes() + kFilterBlockBytes, 1)) {
  HOTBED_CHECK(shape_.blocks_per_bucket > 0) << table.name << ": no filter is large enough";
  HOTBED_CHECK(memory_ != nullptr) << table.name << ": no memory for " << bytes() << " bytes";
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  const uintptr_t past = address % kFilterBlockBytes;
  blocks_ = static_cast<uint8_t*>(memory_.get()) + (past == 0 ? 0 : kFilterBlockBytes - past);
}

// True: the id has the touches that its row needs.
template <uint32_t kBits>
bool TouchFilter::TouchOne(uint8_t* block, uint64_t probes) {
  constexpr uint32_t kMask = (1u << kBits) - 1;
  constexpr uint32_t kPerByte = 8 / kBits;
  constexpr uint32_t kPlaceBits = kBits == 4 ? 7 : 6;
  constexpr uint32_t kPlaces = 8 * kFilterBlockBytes / kBits;
  uint32_t values[kFilterProbesMax];
  uint32_t least = kMask;
  uint64_t left = probes;
  for (uint32_t p = 0; p < shape_.probes; ++p, left >>= kPlaceBits) {
    const uint32_t place = left % kPlaces;
    values[p] = block[place / kPerByte] >> (place % kPerByte * kBits) & kMask;
    least = std::min(least, values[p]);
  }
  if (least >= needed_) return true;
  left = probes;
  for (uint32_t p = 0; p < shape_.probes; ++p, left >>= kPlaceBits) {
    if (values[p] != least) continue;
    const uint32_t place = left % kPlaces;
    const uint32_t shift = place % kPerByte * kBits;
    uint8_t& byte = block[place / kPerByte];
    if ((byte >> shift & kMask) != least) continue;  // raised already: a place that comes twice
    used_ += least == 0;
    byte = static_cast<uint8_t>(byte + (1u << shift));
  }
  return least + 1 >= needed_;
}

template <uint32_t kBits>
void TouchFilter::TouchAll(const uint64_t* ids, const std::vector<uint32_t>& picks,
                           uint8_t* enough) {
  constexpr size_t kAhead = 16;
  uint64_t positions[kAhead];
  for (size_t k = 0; k < picks.size() + kAhead; ++k) {
    if (k >= kAhead && k - kAhead < picks.size()) {
      const uint64_t position = positions[k % kAhead];
      const bool has = TouchOne<kBits>(BlockOf(position), TouchFilterShape::ProbesOf(position));
      enough[picks[k - kAhead]] = has ? 1 : 0;
    }
    if (k >= picks.size()) continue;
    positions[k % kAhead] = Mix64(ids[picks[k]]);
    __builtin_prefetch(BlockOf(positions[k % kAhead]), 1, 3);
  }
}

void TouchFilter::Touch(const uint64_t* ids, const std::vector<uint32_t>& picks, uint8_t* enough) {
  if (shape_.counter_bits == 4) {
    TouchAll<4>(ids, picks, enough);
  } else {
    TouchAll<8>(ids, picks, enough);
  }
}

std::string TouchFilter::Save() const {
  std::string out;
  if (used_ == 0) return out;
  const uint64_t blocks = shape_.Blocks(buckets_);
  uint32_t count = 0;
  for (uint64_t b = 0; b < blocks; ++b) count += !IsZero(blocks_ + kFilterBlockBytes * b);
  out.reserve(kPieceHeadBytes + count * kSavedBlockBytes);
  AppendLittle<uint32_t>(shape_.blocks_per_bucket, &out);
  AppendLittle<uint32_t>(shape_.probes, &out);
  AppendLittle<uint32_t>(shape_.counter_bits, &out);
  AppendLittle<uint32_t>(count, &out);
  for (uint64_t b = 0; b < blocks; ++b) {
    const uint8_t* const block = blocks_ + kFilterBlockBytes * b;
    if (IsZero(block)) continue;
    AppendLittle<uint32_t>(static_cast<uint32_t>(first_block_ + b), &out);
    out.append(reinterpret_cast<const char*>(block), kFilterBlockBytes);
  }
  return out;
}

absl::Status TouchFilter::Restore(absl::string_view saved) {
  const uint64_t blocks = shape_.Blocks(buckets_);
  while (!saved.empty()) {
    ByteReader head(saved.substr(0, std::min<uint64_t>(kPieceHeadBytes, saved.size())));
    TouchFilterShape shape;
    shape.blocks_per_bucket = head.Take<uint32_t>();
    shape.probes = head.Take<uint32_t>();
    shape.counter_bits = head.Take<uint32_t>();
    const uint64_t count = head.Take<uint32_t>();
    if (!head.ok() || (saved.size() - kPieceHeadBytes) / kSavedBlockBytes < count) {
      return absl::DataLossError(
          absl::StrCat("filter of touches: ", count, " blocks in ", saved.size(), " bytes"));
    }
    saved.remove_prefix(kPieceHeadBytes);
    for (uint64_t k = 0; shape == shape_ && k < count; ++k) {
      const char* const from = saved.data() + kSavedBlockBytes * k;
      const uint64_t number = uint64_t{LoadLittle<uint32_t>(from)} - first_block_;
      if (number >= blocks) continue;  // of another shard
      uint8_t* const block = blocks_ + kFilterBlockBytes * number;
      used_ -= UsedIn(block);
      std::memcpy(block, from + 4, kFilterBlockBytes);
      used_ += UsedIn(block);
    }
    saved.remove_prefix(kSavedBlockBytes * count);
  }
  return absl::OkStatus();
}

uint64_t TouchFilter::UsedIn(const uint8_t* block) const {
  uint64_t used = 0;
  for (uint32_t at = 0; at < kFilterBlockBytes; ++at) {
    used += shape_.counter_bits == 8 ? block[at] != 0 : (block[at] & 15) != 0;
    used += shape_.counter_bits == 4 && block[at] >> 4 != 0;
  }
  return used;
}

}  // namespace hotbed
