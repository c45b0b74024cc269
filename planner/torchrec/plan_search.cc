#include "planner/torchrec/plan_search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "planner/torchrec/proposers.h"

namespace hotbed::torchrec {
namespace {

class Search {
 public:
  Search(SearchSpace* space, const RankTopology& topology, const std::vector<Storage>& capacity,
         const std::vector<std::vector<uint32_t>>& pins, const SearchLimits& limits,
         const CacheModel& caches)
      : space_(*space),
        topology_(topology),
        capacity_(capacity),
        limits_(limits),
        caches_(caches),
        greedy_(topology, capacity, pins) {
    for (const Storage& rank : capacity) room_ += rank;
    options_.resize(space_.size());
  }

  SearchResult Run() {
    std::vector<std::unique_ptr<Proposer>> proposers;
    std::vector<TorchrecProposer> kinds = limits_.proposers;
    if (kinds.empty()) {
      kinds = {TorchrecProposer::kGridSearch, TorchrecProposer::kGreedy,
               TorchrecProposer::kGreedyBySum, TorchrecProposer::kUniform};
    }
    for (const TorchrecProposer kind : kinds) {
      proposers.push_back(MakeProposer(kind, &space_, capacity_, caches_));
    }
    // An equal share for each proposer, so that a search that is cut short has tried all of them.
    // The rest then goes to the unfinished proposers, in the same order.
    const uint64_t all = limits_.evaluations_max;
    for (size_t i = 0; i < proposers.size(); ++i) {
      const uint64_t left = all - std::min(all, spent_);
      Drive(i, spent_ + left / (proposers.size() - i), proposers[i].get());
    }
    for (size_t i = 0; i < proposers.size(); ++i) {
      if (!Drive(i, all, proposers[i].get())) result_.cut_short = true;
    }
    return std::move(result_);
  }

 private:
  // False when the evaluations end before the proposals.
  bool Drive(size_t proposer_index, uint64_t evaluations_limit, Proposer* proposer) {
    while (const Proposal* const proposal = proposer->Current()) {
      if (!Try(*proposal, proposer_index, evaluations_limit)) return false;
      proposer->Learn(tried_.at(proposal->hash));
      proposer->Next();
    }
    return true;
  }

  // False when the evaluations are spent.
  bool Try(const Proposal& proposal, size_t proposer_index, uint64_t evaluations_limit) {
    if (tried_.contains(proposal.hash)) return true;
    if (!proposal.storage.FitsIn(room_)) {
      tried_[proposal.hash] = std::nullopt;
      ++result_.proposals;
      RecordFailure(proposal);
      return true;
    }
    const uint64_t cost = (proposal.work + kWorkPerEvaluation - 1) / kWorkPerEvaluation;
    // The first is always tried: a plan may be in it.
    if (spent_ > 0 && spent_ + cost > evaluations_limit) return false;
    tried_[proposal.hash] = std::nullopt;
    spent_ += cost;
    ++result_.proposals;
    for (size_t t = 0; t < space_.size(); ++t) options_[t] = &space_[t][proposal.choice[t]];
    PartitionFailure failure;
    if (!Partition(&failure)) {
      result_.last_failure = failure;
      RecordFailure(proposal);
      return true;
    }
    ++result_.plans;
    // Adding up every rank's time in TorchRec's order costs tables x ranks: only where it decides.
    constexpr double kRounding = 1e-6;
    if (limits_.partitioner == PartitionerKind::kGreedy && result_.best &&
        greedy_.SlowestMs() > result_.best->rating_ms * (1 + kRounding)) {
      tried_[proposal.hash] = greedy_.SlowestMs();
      return true;
    }
    const double rating_ms = RatePlan(topology_, options_, assignment_);
    tried_[proposal.hash] = rating_ms;
    // Among equals the first in the proposers' order, whatever the order of the search.
    if (!result_.best || rating_ms < result_.best->rating_ms ||
        (rating_ms == result_.best->rating_ms && proposer_index < best_proposer_)) {
      best_proposer_ = proposer_index;
      result_.best =
          FoundPlan{.options = options_, .assignment = assignment_, .rating_ms = rating_ms};
    }
    return true;
  }

  bool Partition(PartitionFailure* failure) {
    if (limits_.partitioner == PartitionerKind::kMemoryBalanced) {
      return PartitionMemoryBalanced(topology_, options_, &greedy_, &assignment_, failure);
    }
    return greedy_.Partition(options_, SortBy::kStorage, std::nullopt, &assignment_, failure);
  }

  void RecordFailure(const Proposal& proposal) {
    if (!failed_ || proposal.storage < result_.least) {
      result_.least = proposal.storage;
      result_.least_choice = proposal.choice;
    }
    failed_ = true;
  }

  SearchSpace& space_;
  const RankTopology& topology_;
  const std::vector<Storage>& capacity_;
  const SearchLimits& limits_;
  const CacheModel& caches_;
  GreedyPartitioner greedy_;
  Storage room_;
  OptionsOfTables options_;
  Assignment assignment_;
  // By hash: the time of the plan; absent: it could not be placed.
  absl::flat_hash_map<absl::uint128, std::optional<double>> tried_;
  uint64_t spent_ = 0;
  size_t best_proposer_ = 0;
  bool failed_ = false;
  SearchResult result_;
};

}  // namespace

SearchResult SearchPlan(SearchSpace* space, const RankTopology& topology,
                        const std::vector<Storage>& capacity,
                        const std::vector<std::vector<uint32_t>>& pins, const SearchLimits& limits,
                        const CacheModel& caches) {
  return Search(space, topology, capacity, pins, limits, caches).Run();
}

}  // namespace hotbed::torchrec
