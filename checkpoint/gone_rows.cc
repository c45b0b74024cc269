#include "checkpoint/gone_rows.h"

#include <algorithm>
#include <vector>

#include "common/status_macros.h"
#include "row_math/candidate.h"

namespace hotbed {

absl::StatusOr<GoneRows> GoneRows::Read(const TableSpec& table, RowsFileReader* file) {
  GoneRows gone;
  const RowsFileHeader& header = file->header();
  if (header.payload_bytes > header.weight_bytes) gone.admission_ = table.life.admission;
  gone.payload_bytes_ = header.payload_bytes;
  std::vector<uint64_t> ids;
  std::vector<uint8_t> payloads;
  for (const RowsFileEntry& entry : file->index()) {
    const bool deletes = entry.kind == RowsFileBlock::kDeleted;
    gone.any_deleted_ |= deletes;
    // A candidate of a later pass may come in place of a row of an earlier one.
    const bool later = entry.kind == RowsFileBlock::kRows && entry.pass > 1;
    if (!deletes && !(later && gone.admission_.Needed() > 1)) continue;
    HOTBED_RETURN_IF_ERROR(file->ReadRows(entry, &ids, &payloads));
    for (size_t k = 0; k < ids.size(); ++k) {
      if (!deletes && !gone.IsCandidate(payloads.data() + k * gone.payload_bytes_)) continue;
      uint32_t& pass = gone.gone_in_[ids[k]];
      pass = std::max(pass, entry.pass);
    }
  }
  return gone;
}

bool GoneRows::IsCandidate(const uint8_t* payload) const {
  return IsCandidateRow(admission_, payload + payload_bytes_);
}

bool GoneRows::Has(uint64_t id, uint32_t pass, const uint8_t* payload) const {
  if (IsCandidate(payload)) return true;
  const auto found = gone_in_.find(id);
  return found != gone_in_.end() && found->second > pass;
}

}  // namespace hotbed
