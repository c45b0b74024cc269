// The bags of one table of a lookup at serving servers, as the wire has them (proto/serving.proto).
// Both sides check them by the same function. Plain values over bytes of others.
#ifndef HOTBED_PROTO_SERVED_BAGS_H_
#define HOTBED_PROTO_SERVED_BAGS_H_

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/serving.pb.h"

namespace hotbed {

struct ServedBags {
  v1::ServedPooling pooling = v1::SERVED_ROWS;
  uint32_t ids = 0;
  uint32_t bags = 0;
  const char* offsets = nullptr;  // u32 per bag
  const char* weights = nullptr;  // fp32 per id; null: none

  bool pooled() const { return pooling != v1::SERVED_ROWS; }
  // Rows of the answer.
  uint32_t rows() const { return pooled() ? bags : ids; }
  // The first id of a bag; of bag number `bags`, the end of the ids.
  uint32_t Begin(uint32_t bag) const { return bag == bags ? ids : Load<uint32_t>(offsets, bag); }
  float Weight(uint32_t id) const { return weights == nullptr ? 1.0f : Load<float>(weights, id); }

 private:
  template <typename Value>
  static Value Load(const char* from, uint32_t at) {
    Value value;
    std::memcpy(&value, from + uint64_t{at} * sizeof(value), sizeof(value));
    return value;
  }
};

// InvalidArgument names `table` (such as `table "user"`), the position, the value and what is
// allowed.
absl::Status CheckServedBags(absl::string_view table, const ServedBags& bags);

}  // namespace hotbed

#endif  // HOTBED_PROTO_SERVED_BAGS_H_
