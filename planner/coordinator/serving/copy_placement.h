// On which serving servers the copies of a table are (docs/serving.md, "Placement").
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_COPY_PLACEMENT_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_COPY_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "planner/coordinator/serving/serving_fleet.h"

namespace hotbed {

// How many servers the parts of a table have.
uint32_t CopiesOf(const v1::ServedTable& table, uint32_t part);
bool HasCopy(const v1::ServedTable& table, const std::string& server);

class CopyPlacement {
 public:
  // Which servers may take a copy: those whose memory suffices, or would suffice if it grew by a
  // quarter, or those with a disk, whether or not it does.
  enum class Room { kEnough, kAmple, kDisk };

  explicit CopyPlacement(const ServingFleet* fleet) : fleet_(*fleet) {}

  // Adds servers until each part has as many as the table wants. A server takes one part, if it is
  // alive. One in a failure domain with few of the part's servers goes first, and among these the
  // one whose memory is filled least.
  void Fill(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
            v1::ServedTable* table, Room room) const;
  // Takes copies that are too many, and gives the tables of servers that are away to others with
  // room.
  void Replace(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
               v1::ServedTable* table) const;
  // Where a domain has two copies of a part more than another one with room, that one gets a
  // further copy; Replace takes one of the crowded domain when the others that are ready suffice.
  void Spread(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
              v1::ServedTable* table) const;

 private:
  // Empty: no server has room.
  std::string LeastFilled(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                          const v1::ServedTable& table, uint32_t part, Room room) const;
  // The copy of `part`, of which there are too many, that goes next: an absent one, one that its
  // server is too small for, or one of the domain with the most. None: a server was not heard yet,
  // or fewer copies would be ready than are wanted.
  std::optional<int> Surplus(int64_t now_ns, const v1::ServedTable& table, uint32_t part) const;

  const ServingFleet& fleet_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_COPY_PLACEMENT_H_
