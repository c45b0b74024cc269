// Operations that the lanes of a mask do together: shuffles, votes, reductions, barriers. The last
// operand is the mask, and all its lanes are here.
#include <algorithm>
#include <string>

#include "tests/device/ptx/ptx_lanes.h"

namespace hotbed {
namespace device {
namespace {

enum class Shuffle { kIndex, kUp, kDown, kButterfly };

// The lane that a lane reads, and whether there is one; as in the PTX manual. `clamp` holds a lane
// number in bits 0..4 and, in bits 8..12, those bits of lane numbers that name a segment.
template <Shuffle kShuffle>
bool SourceLane(uint32_t lane, uint32_t b, uint32_t clamp, uint32_t* source) {
  const uint32_t segment = clamp >> 8 & 31, limit = clamp & 31;
  const uint32_t least = lane & segment, most = least | (limit & ~segment);
  b &= 31;
  switch (kShuffle) {
    case Shuffle::kUp:
      *source = lane - b;
      return static_cast<int32_t>(*source) >= static_cast<int32_t>(most);
    case Shuffle::kDown:
      *source = lane + b;
      return *source <= most;
    case Shuffle::kButterfly:
      *source = lane ^ b;
      return *source <= most;
    case Shuffle::kIndex:
      *source = least | (b & ~segment);
      return *source <= most;
  }
  return false;
}

template <Shuffle kShuffle>
void ShuffleLanes(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t* const a = warp->Lanes<uint32_t>(in.from[0]);
  const uint32_t* const b = warp->Lanes<uint32_t>(in.from[1]);
  const uint32_t* const c = warp->Lanes<uint32_t>(in.from[2]);
  uint32_t made[kWarpLanes], inside = 0;
  ForLanes(lanes, [&](uint32_t lane) {
    uint32_t source = 0;
    const bool is_inside = SourceLane<kShuffle>(lane, b[lane], c[lane], &source);
    inside |= uint32_t{is_inside} << lane;
    if (!is_inside) source = lane;
    if ((lanes >> source & 1) == 0) {
      warp->Fail(in, lane, "reads lane " + std::to_string(source) + ", which is not in its mask");
    }
    made[lane] = a[source];
  });
  uint32_t* const to = warp->Lanes<uint32_t>(in.to[0]);
  ForLanes(lanes, [&](uint32_t lane) { to[lane] = made[lane]; });
  if (in.to_count < 2) return;
  uint32_t& predicate = warp->Mask(in.to[1]);
  predicate = (predicate & ~lanes) | inside;
}

void Ballot(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t votes = warp->Mask(in.from[0]) & lanes;
  uint32_t* const to = warp->Lanes<uint32_t>(in.to[0]);
  ForLanes(lanes, [&](uint32_t lane) { to[lane] = votes; });
}

enum class Vote { kAll, kAny, kUniform };
template <Vote kVote>
void VoteLanes(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t votes = warp->Mask(in.from[0]) & lanes;
  const bool all = votes == lanes;
  const bool holds = kVote == Vote::kAll   ? all
                     : kVote == Vote::kAny ? votes != 0
                                           : all || votes == 0;
  uint32_t& to = warp->Mask(in.to[0]);
  to = (to & ~lanes) | (holds ? lanes : 0);
}

struct Least {
  static uint32_t Do(uint32_t a, uint32_t b) { return std::min(a, b); }
};
struct Most {
  static uint32_t Do(uint32_t a, uint32_t b) { return std::max(a, b); }
};
struct LeastSigned {
  static uint32_t Do(uint32_t a, uint32_t b) {
    return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? a : b;
  }
};
struct MostSigned {
  static uint32_t Do(uint32_t a, uint32_t b) {
    return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? a : b;
  }
};
struct Sum {
  static uint32_t Do(uint32_t a, uint32_t b) { return a + b; }
};
struct Both {
  static uint32_t Do(uint32_t a, uint32_t b) { return a & b; }
};
struct Either {
  static uint32_t Do(uint32_t a, uint32_t b) { return a | b; }
};
struct Differs {
  static uint32_t Do(uint32_t a, uint32_t b) { return a ^ b; }
};

template <typename F>
void Reduce(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t* const from = warp->Lanes<uint32_t>(in.from[0]);
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(lanes));
  uint32_t made = from[first];
  ForLanes(lanes & ~(1u << first), [&](uint32_t lane) { made = F::Do(made, from[lane]); });
  uint32_t* const to = warp->Lanes<uint32_t>(in.to[0]);
  ForLanes(lanes, [&](uint32_t lane) { to[lane] = made; });
}

void Barrier(PtxWarp*, const PtxInstruction&, uint32_t) {}

}  // namespace

void AddSyncOperations(OperationTable* table) {
  OperationTable& t = *table;
  const auto kSync = OperationKind::kSync;
  t["shfl.sync.idx.b32"] = {kSync, "s=wwww", &ShuffleLanes<Shuffle::kIndex>};
  t["shfl.sync.up.b32"] = {kSync, "s=wwww", &ShuffleLanes<Shuffle::kUp>};
  t["shfl.sync.down.b32"] = {kSync, "s=wwww", &ShuffleLanes<Shuffle::kDown>};
  t["shfl.sync.bfly.b32"] = {kSync, "s=wwww", &ShuffleLanes<Shuffle::kButterfly>};
  t["vote.sync.ballot.b32"] = {kSync, "w=pw", &Ballot};
  t["vote.sync.all.pred"] = {kSync, "p=pw", &VoteLanes<Vote::kAll>};
  t["vote.sync.any.pred"] = {kSync, "p=pw", &VoteLanes<Vote::kAny>};
  t["vote.sync.uni.pred"] = {kSync, "p=pw", &VoteLanes<Vote::kUniform>};
  t["redux.sync.min.u32"] = {kSync, "w=ww", &Reduce<Least>};
  t["redux.sync.max.u32"] = {kSync, "w=ww", &Reduce<Most>};
  t["redux.sync.min.s32"] = {kSync, "w=ww", &Reduce<LeastSigned>};
  t["redux.sync.max.s32"] = {kSync, "w=ww", &Reduce<MostSigned>};
  t["redux.sync.add.u32"] = {kSync, "w=ww", &Reduce<Sum>};
  t["redux.sync.add.s32"] = {kSync, "w=ww", &Reduce<Sum>};
  t["redux.sync.and.b32"] = {kSync, "w=ww", &Reduce<Both>};
  t["redux.sync.or.b32"] = {kSync, "w=ww", &Reduce<Either>};
  t["redux.sync.xor.b32"] = {kSync, "w=ww", &Reduce<Differs>};
  // The only one of them that orders memory: shuffles and votes pass values and nothing else.
  t["bar.warp.sync"] = {kSync, "w", &Barrier};
  t["bar.warp.sync"].orders = true;
}

}  // namespace device
}  // namespace hotbed
