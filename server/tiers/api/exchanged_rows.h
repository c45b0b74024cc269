// Rows of one shard on their way between two of its tiers in memory.
#ifndef HOTBED_SERVER_TIERS_API_EXCHANGED_ROWS_H_
#define HOTBED_SERVER_TIERS_API_EXCHANGED_ROWS_H_

#include <cstdint>
#include <vector>

namespace hotbed {

struct ExchangedRows {
  uint32_t payload_bytes = 0;  // weights, then state, of a row
  std::vector<uint64_t> positions;
  std::vector<uint8_t> dirty;  // 1: the spill tier, or WriteBack, does not have the row like this
  std::vector<uint8_t> payloads;

  uint32_t size() const { return static_cast<uint32_t>(positions.size()); }
  const uint8_t* payload(uint32_t k) const { return payloads.data() + uint64_t{payload_bytes} * k; }
  // Room for the payload of one more row, valid until the next one.
  uint8_t* Add(uint64_t position, bool is_dirty) {
    positions.push_back(position);
    dirty.push_back(is_dirty ? 1 : 0);
    payloads.resize(payloads.size() + payload_bytes);
    return payloads.data() + payloads.size() - payload_bytes;
  }
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_EXCHANGED_ROWS_H_
