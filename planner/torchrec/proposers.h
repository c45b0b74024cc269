// Which option each table takes in the next plan to try (planner/proposers.py at a48cef7).
//
// Options of a table are sorted by time, equals in the enumerator's order: by their slowest shard
// ("depth") or by the sum over their shards.
//   grid search  every combination, the last table's option changing fastest; nothing where there
//                are more than 10,000
//   greedy       starts with the first option of every table; each step moves one table to its
//                next: the one whose present option has the largest (device memory of its largest
//                shard, of all shards, host memory of its largest, of all), equals in table order;
//                ends when no table with storage has a next option
//   uniform      for each sharding type, in order of first appearance, that all tables can take:
//                the best option (by depth) of each
//
//   cache scale-up        see cache_scaleup.h
//   dynamic programming   first the option with the least device memory of every table. Then, with
//                the device memory of all ranks in kBinsPerRank bins a rank, for each number of
//                bins in use, from the most on, the choice with the least sum of times whose device
//                memory ends in that bin (as far as a table at a time can tell: only the best
//                choice of each bin goes on to the next table). Nothing without device memory. Here
//                there are fewer bins where tables x bins would exceed kBinsMax.
//
// Greedy keeps a heap, and every proposal its storage and hash, so that a step costs O(log tables)
// where there it costs O(tables x shards). Not thread safe.
#ifndef HOTBED_PLANNER_TORCHREC_PROPOSERS_H_
#define HOTBED_PLANNER_TORCHREC_PROPOSERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/model/planner_input.h"
#include "planner/torchrec/cache_model.h"
#include "planner/torchrec/sharding_option.h"

namespace hotbed::torchrec {

struct Proposal {
  std::vector<uint32_t> choice;  // by table: index into its options
  Storage storage;               // of all shards
  uint64_t work = 0;             // of all options, see ShardingOption
  absl::uint128 hash = 0;        // equal for equal choices
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // The proposal to try, or nullptr when there are no more; valid until Next().
  virtual const Proposal* Current() = 0;
  // The outcome of Current(), before Next(): the time of its plan; absent: it could not be placed.
  virtual void Learn(std::optional<double> /*rating_ms*/) {}
  virtual void Next() = 0;
};

constexpr uint64_t kGridProposalsMax = 10000;
constexpr uint64_t kBinsPerRank = 100;
constexpr uint64_t kBinsMax = 4'000'000;

// `space` must outlive them.
std::unique_ptr<Proposer> GridSearchProposer(const SearchSpace& space);
std::unique_ptr<Proposer> GreedyProposer(const SearchSpace& space, bool by_depth);
std::unique_ptr<Proposer> UniformProposer(const SearchSpace& space);
// `capacity` by rank, after reservations; read at once.
std::unique_ptr<Proposer> DynamicProgrammingProposer(const SearchSpace& space,
                                                     const std::vector<Storage>& capacity);

// The cache scale-up (cache_scaleup.h) adds options to `space` when it is first asked for a
// proposal, which the others never see.
std::unique_ptr<Proposer> MakeProposer(TorchrecProposer kind, SearchSpace* space,
                                       const std::vector<Storage>& capacity,
                                       const CacheModel& caches);

// The proposal of these options.
Proposal ProposalOf(const SearchSpace& space, const std::vector<uint32_t>& choice);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_PROPOSERS_H_
