// The parts into which the copies of a served table are cut (docs/serving.md, "Parts"): ranges of
// its ids, or of the buckets of a hashed table, of equal length. Pure functions.
#ifndef HOTBED_PROTO_SERVED_PART_H_
#define HOTBED_PROTO_SERVED_PART_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/numeric/int128.h"
#include "proto/serving.pb.h"
#include "row_math/position.h"

namespace hotbed {

constexpr uint32_t kServedPartsMax = 64;

// Part number `part` of `parts`; the whole table, if not told otherwise.
struct ServedPart {
  uint32_t part = 0;
  uint32_t parts = 1;
  friend bool operator==(const ServedPart&, const ServedPart&) = default;
};

// As messages have it, where 0 parts are one.
template <typename Message>
ServedPart ServedPartOf(const Message& message) {
  return {message.part(), std::max<uint32_t>(message.parts(), 1)};
}

inline uint32_t ServedPartsOf(const v1::ServedTable& table) {
  return std::max<uint32_t>(table.parts(), 1);
}

inline ServedPart ServedPartAt(const v1::ServedTable& table, int server) {
  const uint32_t part = server < table.server_parts_size() ? table.server_parts(server) : 0;
  return {part, ServedPartsOf(table)};
}

// The part that the server of that name is to have; nothing: none.
inline std::optional<ServedPart> ServedPartOn(const v1::ServedTable& table,
                                              const std::string& server) {
  const auto at = std::find(table.servers().begin(), table.servers().end(), server);
  if (at == table.servers().end()) return std::nullopt;
  return ServedPartAt(table, static_cast<int>(at - table.servers().begin()));
}

// The table in the other cut that it has (ServedTable.beside).
inline v1::ServedTable BesideOf(const v1::ServedTable& table) {
  v1::ServedTable cut = table;
  cut.set_parts(table.beside().parts());
  *cut.mutable_servers() = table.beside().servers();
  *cut.mutable_server_parts() = table.beside().server_parts();
  cut.clear_beside();
  return cut;
}

// `cut` is the table in another cut.
inline void SetBeside(const v1::ServedTable& cut, bool leaves, v1::ServedTable* table) {
  v1::ServedCut& beside = *table->mutable_beside();
  beside.set_parts(cut.parts());
  *beside.mutable_servers() = cut.servers();
  *beside.mutable_server_parts() = cut.server_parts();
  beside.set_leaves(leaves);
}

// Where the ids of a table lie: [0, places) are cut.
struct ServedPlaces {
  bool hashed = false;
  uint64_t places = 1;

  static ServedPlaces Of(const v1::TableSpec& spec) {
    return {spec.hashed(), spec.hashed() ? kBuckets : std::max<uint64_t>(spec.rows(), 1)};
  }
  uint64_t PlaceOf(uint64_t id) const { return hashed ? BucketOf(Mix64(id)) : id; }
  // The first place of the part; of part number `parts`, the end.
  uint64_t FirstOf(const ServedPart& part) const {
    return static_cast<uint64_t>(absl::uint128(places) * part.part / part.parts);
  }
  // The part of `parts` that has the id. Ids beyond a bounded table are of the last one.
  uint32_t PartOfId(uint64_t id, uint32_t parts) const {
    const uint64_t place = std::min(PlaceOf(id), places - 1);
    return static_cast<uint32_t>(((absl::uint128(place) + 1) * parts - 1) / places);
  }
};

}  // namespace hotbed

#endif  // HOTBED_PROTO_SERVED_PART_H_
