// How the rows of a table with touches come and go (docs/tables.md):
//
//   auto touches = hotbed::ReadTouches(client.get(), *table, ids);
//   auto life = hotbed::CountByLife(client.get(), *table, (*table)->options().life);  // a dry run
//
// Both ask the primaries, which alone decide. They block. InvalidArgument: the table keeps no
// touches.
#ifndef HOTBED_ROW_LIFE_H_
#define HOTBED_ROW_LIFE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hotbed/client.h"

namespace hotbed {

struct RowLife {
  bool exists = false;     // there is a row, and it is admitted
  bool candidate = false;  // the row waits for further touches
  uint32_t touches = 0;    // pushes that have named it
  uint32_t time_s = 0;     // of the last one, since 1970, by the primary's clock; 0: none
  uint64_t step = 0;       // of the last one
  // As pushes have said, decayed to now; 0 where the table keeps none.
  float shows = 0;
  float clicks = 0;
};

// Per id, in order.
absl::StatusOr<std::vector<RowLife>> ReadTouches(Client* client, const Table* table,
                                                 absl::Span<const uint64_t> ids,
                                                 absl::Duration deadline = absl::ZeroDuration());

struct LifeCount {
  uint64_t rows = 0;
  uint64_t expires =
      0;                // of these, would be deleted now because they were not touched for too long
  uint64_t evicts = 0;  // likewise, because there are more than the limit
};

// Deletes nothing: the rows that these policies would take now, if they were the table's.
absl::StatusOr<LifeCount> CountByLife(Client* client, const Table* table, const LifeParams& life,
                                      absl::Duration deadline = absl::ZeroDuration());

}  // namespace hotbed

#endif  // HOTBED_ROW_LIFE_H_
