// How the memory for rows is divided among the shards of a server once all of it is taken: a pure
// function, called with each round (TierHostImpl::Divide).
//
// Between two rounds each shard has counted the bytes of its rows that nobody visited (cold: what
// it would lose by having less memory), and of the rows that it had to read from the disk twice
// (wanted: what it would gain from having more). As many bytes as are both cold somewhere and
// wanted somewhere change hands: every shard gives in proportion to what it has of the cold ones
// and gets in proportion to its part of the wanted ones. Shards of equal use end with equal gain
// from another byte, whichever table they belong to; without demand nothing moves.
//
// A round ends after about as many accesses as there are rows in memory, so by chance many rows in
// use have no visit in it. A shard with fewer accesses than rows has rows without a visit for sure
// (idle). Idle rows leave before other cold ones, and as long as there are any, some of the rows
// that were read from the disk only once get memory as well.
//
// Two claims need no cold rows on the other side: a table below its least share, and a shard with
// hardly any memory, that could not even work on a batch. They are met from whoever has most.
#ifndef HOTBED_SERVER_TIERS_MEMORY_MEMORY_DIVISION_H_
#define HOTBED_SERVER_TIERS_MEMORY_MEMORY_DIVISION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotbed {

// All numbers are bytes.
struct TableShare {
  uint64_t taken = 0;
  uint64_t least = 0;
  uint64_t most = ~uint64_t{0};
};
struct ShardDemand {
  size_t table = 0;  // index of its TableShare
  uint64_t taken = 0;
  uint64_t cold = 0;
  uint64_t idle = 0;  // counts as cold, whatever `cold` says
  uint64_t wanted = 0;
  uint64_t refused = 0;  // of all rows that found no free slot
};
struct ShardTransfer {
  uint64_t give_cold = 0;    // of rows without visits
  uint64_t give_forced = 0;  // of any rows, those with the fewest visits first
  uint64_t credit = 0;       // may be taken
};

// At most this part of the budget changes hands in a round, besides claims.
constexpr uint64_t kMovedShare = 4;
// While there are idle rows, one of so many rows that were read only once counts as wanted.
constexpr uint64_t kReadOnceShare = 4;
// A shard that asks for memory has at least this part of an even share.
constexpr uint64_t kFloorShare = 8;
constexpr uint64_t kFloorBytesMax = 1ull << 20;
// A shard gives nothing below this part of what it has: noise is not worth moving rows. Others give
// more in its place.
constexpr uint64_t kNoiseShare = 32;
// And nothing below this, however much it has: a disk reads a large part again in many rounds.
constexpr uint64_t kNoiseBytesMax = 1ull << 20;

// One transfer for each of `shards`.
std::vector<ShardTransfer> DivideMemory(uint64_t budget, uint64_t taken,
                                        const std::vector<TableShare>& tables,
                                        const std::vector<ShardDemand>& shards);

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_MEMORY_DIVISION_H_
