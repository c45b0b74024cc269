#include "server/shard/push_state.h"

#include <cstring>
#include <optional>
#include <utility>

#include "server/shard/shard.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {
namespace {

constexpr size_t kSparesMax = 1024;  // a message over as many shards

std::vector<std::unique_ptr<PushState>>& Spares() {
  thread_local std::vector<std::unique_ptr<PushState>> spares;
  return spares;
}

}  // namespace

void PushState::EncodeRecord() {
  const uint64_t bytes = RecordBytes(append.header);
  std::shared_ptr<uint64_t[]> memory(new uint64_t[bytes / 8]);
  hotbed::EncodeRecord(append.header, ids, gradients, reinterpret_cast<char*>(memory.get()));
  record.bytes = {reinterpret_cast<const uint8_t*>(memory.get()), bytes};
  record.owner = std::move(memory);
}

void PushState::PointIntoRecord() {
  const RecordHeader& header = append.header;
  count = header.id_count;
  const uint8_t* at = record.bytes.data() + kRecordHeaderBytes;
  if (reinterpret_cast<uintptr_t>(at) % alignof(uint64_t) == 0) {
    ids = reinterpret_cast<const uint64_t*>(at);
  } else {
    kept_ids.resize(count);
    std::memcpy(kept_ids.data(), at, 8ull * count);
    ids = kept_ids.data();
  }
  at += 8ull * count;
  kept_gradients.clear();
  const uint64_t row_bytes = GradientRowBytes(header);
  for (uint32_t i = 0; row_bytes > 0 && i < count; ++i) {
    kept_gradients.push_back(at + i * row_bytes);
  }
  gradients = kept_gradients.data();
}

bool PushState::TakeRecord(SharedBytes bytes) {
  if (bytes.bytes.size() < kRecordHeaderBytes) return false;
  const char* const at = reinterpret_cast<const char*>(bytes.bytes.data());
  const std::optional<DecodedHeader> decoded = DecodeRecordHeader(at);
  if (!decoded.has_value() || decoded->length != bytes.bytes.size() ||
      !PayloadIntact(*decoded, at)) {
    return false;
  }
  append.header = decoded->header;
  scalars = decoded->header.scalars;
  record = std::move(bytes);
  PointIntoRecord();
  return true;
}

void PushState::Settle() { logged_by->TakeLogged(this); }

PushState* PushState::Take() {
  auto& spares = Spares();
  if (spares.empty()) return new PushState;
  PushState* state = spares.back().release();
  spares.pop_back();
  return state;
}

void PushState::Give() {
  std::unique_ptr<PushState> self(this);
  running.End();
  if (Spares().size() >= kSparesMax) return;
  kept_ids.clear();
  kept_gradients.clear();
  refusal = Refusal();
  work = nullptr;
  segment = nullptr;
  replied = in_log = in_core = cut = false;
  record = SharedBytes();
  append.encoded = {};
  waits_until_ns = 0;
  append_status = absl::OkStatus();
  Spares().push_back(std::move(self));
}

}  // namespace hotbed
