#include "planner/torchrec/proposers.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/numeric/int128.h"
#include "planner/torchrec/cache_scaleup.h"

namespace hotbed::torchrec {
namespace {

// Option indices by ascending time.
std::vector<uint32_t> SortOptions(const std::deque<ShardingOption>& options, bool by_depth) {
  std::vector<uint32_t> order(options.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return by_depth ? options[a].shard_ms < options[b].shard_ms
                    : options[a].sum_ms < options[b].sum_ms;
  });
  return order;
}

uint64_t Mix(uint64_t x) {  // the finaliser of splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A sum of these over the tables is the hash of a choice, so that one change is cheap.
absl::uint128 HashOf(uint32_t table, uint32_t option) {
  const uint64_t low = Mix((uint64_t{table} << 32) | option);
  return absl::MakeUint128(Mix(~low), low);
}

void AddChoice(const SearchSpace& space, uint32_t table, uint32_t option, Proposal* proposal) {
  const ShardingOption& chosen = space[table][option];
  proposal->choice[table] = option;
  proposal->storage += chosen.sum;
  proposal->work += chosen.work;
  proposal->hash += HashOf(table, option);
}

void DropChoice(const SearchSpace& space, uint32_t table, Proposal* proposal) {
  const uint32_t option = proposal->choice[table];
  const ShardingOption& chosen = space[table][option];
  proposal->storage -= chosen.sum;
  proposal->work -= chosen.work;
  proposal->hash -= HashOf(table, option);
}

// Proposals that follow each other by an index.
class IndexedProposer : public Proposer {
 public:
  explicit IndexedProposer(const SearchSpace& space) : space_(space) {}

  const Proposal* Current() override {
    if (index_ >= count_) return nullptr;
    if (!built_) {
      proposal_ = Proposal();
      proposal_.choice.resize(space_.size());
      Build(index_);
      built_ = true;
    }
    return &proposal_;
  }
  void Next() override {
    ++index_;
    built_ = false;
  }

 protected:
  virtual void Build(uint64_t index) = 0;

  const SearchSpace& space_;
  uint64_t count_ = 0;
  Proposal proposal_;

 private:
  uint64_t index_ = 0;
  bool built_ = false;
};

class GridSearch final : public IndexedProposer {
 public:
  explicit GridSearch(const SearchSpace& space) : IndexedProposer(space) {
    uint64_t combinations = 1;
    for (const std::deque<ShardingOption>& options : space) {
      combinations *= options.size();
      if (combinations > kGridProposalsMax) return;
    }
    count_ = combinations;
    for (const std::deque<ShardingOption>& options : space) {
      orders_.push_back(SortOptions(options, true));
    }
  }

 private:
  void Build(uint64_t index) override {
    for (uint32_t t = static_cast<uint32_t>(space_.size()); t-- > 0;) {
      const uint64_t options = orders_[t].size();
      AddChoice(space_, t, orders_[t][index % options], &proposal_);
      index /= options;
    }
  }

  std::vector<std::vector<uint32_t>> orders_;
};

class Uniform final : public IndexedProposer {
 public:
  explicit Uniform(const SearchSpace& space) : IndexedProposer(space) {
    std::vector<Sharding> types;
    for (const std::deque<ShardingOption>& options : space) {
      for (const ShardingOption& option : options) {
        if (std::find(types.begin(), types.end(), option.sharding) == types.end()) {
          types.push_back(option.sharding);
        }
      }
    }
    for (const Sharding type : types) {
      std::vector<uint32_t> choice;
      for (const std::deque<ShardingOption>& options : space) {
        const std::vector<uint32_t> order = SortOptions(options, true);
        const auto best = std::find_if(order.begin(), order.end(), [&](uint32_t option) {
          return options[option].sharding == type;
        });
        if (best == order.end()) break;
        choice.push_back(*best);
      }
      if (choice.size() == space.size()) choices_.push_back(std::move(choice));
    }
    count_ = choices_.size();
  }

 private:
  void Build(uint64_t index) override {
    for (uint32_t t = 0; t < space_.size(); ++t) {
      AddChoice(space_, t, choices_[index][t], &proposal_);
    }
  }

  std::vector<std::vector<uint32_t>> choices_;
};

class DynamicProgramming final : public IndexedProposer {
 public:
  DynamicProgramming(const SearchSpace& space, const std::vector<Storage>& capacity)
      : IndexedProposer(space) {
    for (uint32_t t = 0; t < space.size(); ++t) {
      for (uint32_t o = 0; o < space[t].size(); ++o) by_memory_.push_back({t, o});
    }
    std::stable_sort(by_memory_.begin(), by_memory_.end(), [&](const Option& a, const Option& b) {
      return space[a.table][a.option].sum.hbm < space[b.table][b.option].sum.hbm;
    });
    options_.resize(space.size());
    for (const Option& option : by_memory_) {
      if (options_[option.table].empty()) tables_.push_back(option.table);
      options_[option.table].push_back(option.option);
    }
    std::vector<uint32_t> least(space.size());
    for (const uint32_t t : tables_) least[t] = options_[t][0];
    choices_.push_back(std::move(least));
    absl::int128 memory = 0;
    for (const Storage& rank : capacity) memory += rank.hbm;
    if (memory > 0 && !space.empty()) Fill(capacity.size(), static_cast<double>(memory));
    count_ = choices_.size();
  }

 private:
  struct Option {
    uint32_t table;
    uint32_t option;
  };
  // The best choice so far whose device memory ends in a bin.
  struct Bin {
    double ms = std::numeric_limits<double>::infinity();
    double memory = 0;  // in bins
  };
  struct Step {
    int32_t option = -1;    // index into options_ of the table; -1: no choice ends here
    uint32_t previous = 0;  // the bin before this table
  };

  void Build(uint64_t index) override {
    for (uint32_t t = 0; t < space_.size(); ++t)
      AddChoice(space_, t, choices_[index][t], &proposal_);
  }

  void Fill(uint64_t ranks, double memory) {
    const uint64_t per_rank =
        std::clamp<uint64_t>(kBinsMax / (space_.size() * ranks), 1, kBinsPerRank);
    const uint64_t bins = per_rank * ranks;
    const double bin_bytes = memory / static_cast<double>(bins);
    std::vector<std::vector<Step>> steps;
    std::vector<Bin> best(bins);
    best[0] = {.ms = 0, .memory = 0};
    for (size_t i = 0; i < tables_.size(); ++i) {
      const uint32_t t = tables_[i];
      std::vector<Bin> next(bins);
      steps.emplace_back(bins);
      for (uint32_t o = 0; o < options_[t].size(); ++o) {
        const ShardingOption& option = space_[t][options_[t][o]];
        const double taken = static_cast<double>(option.sum.hbm) / bin_bytes;
        for (uint32_t bin = 0; bin < (i == 0 ? 1 : bins); ++bin) {
          const double used = best[bin].memory + taken;
          if (best[bin].ms == std::numeric_limits<double>::infinity() ||
              used >= static_cast<double>(bins)) {
            continue;
          }
          const double ms = best[bin].ms + option.sum_ms;
          const auto at = static_cast<uint32_t>(used);
          if (next[at].ms <= ms) continue;
          next[at] = {.ms = ms, .memory = used};
          steps.back()[at] = {.option = static_cast<int32_t>(o), .previous = bin};
        }
      }
      best = std::move(next);
    }
    for (uint64_t bin = bins; bin-- > 0;) {
      if (steps.back()[bin].option < 0) continue;
      std::vector<uint32_t> choice(space_.size());
      uint64_t at = bin;
      for (size_t i = tables_.size(); i-- > 0;) {
        const Step& step = steps[i][at];
        choice[tables_[i]] = options_[tables_[i]][static_cast<size_t>(step.option)];
        at = step.previous;
      }
      choices_.push_back(std::move(choice));
    }
  }

  std::vector<Option> by_memory_;
  std::vector<uint32_t> tables_;                // in the order of their least device memory
  std::vector<std::vector<uint32_t>> options_;  // by table, in that order
  std::vector<std::vector<uint32_t>> choices_;
};

class Greedy final : public Proposer {
 public:
  Greedy(const SearchSpace& space, bool by_depth) : space_(space), position_(space.size(), 0) {
    proposal_.choice.resize(space.size());
    for (uint32_t t = 0; t < space.size(); ++t) {
      orders_.push_back(SortOptions(space[t], by_depth));
      AddChoice(space, t, orders_[t][0], &proposal_);
      Offer(t);
    }
  }

  const Proposal* Current() override { return done_ ? nullptr : &proposal_; }

  void Next() override {
    if (movable_.empty()) {
      done_ = true;
      return;
    }
    const uint32_t table = movable_.top().table;
    movable_.pop();
    DropChoice(space_, table, &proposal_);
    AddChoice(space_, table, orders_[table][++position_[table]], &proposal_);
    Offer(table);
  }

 private:
  struct Movable {
    std::array<absl::int128, 4> storage;
    uint32_t table = 0;
    // The order of the priority queue: the largest storage first, then the first table.
    friend bool operator<(const Movable& a, const Movable& b) {
      return a.storage != b.storage ? a.storage < b.storage : a.table > b.table;
    }
  };

  // Puts the table into the queue when it has a next option.
  void Offer(uint32_t table) {
    if (position_[table] + 1 >= orders_[table].size()) return;
    const ShardingOption& option = space_[table][proposal_.choice[table]];
    Movable movable;
    movable.storage = {option.largest.hbm, option.sum.hbm, option.largest.ddr, option.sum.ddr};
    movable.table = table;
    // A table that stores nothing is never moved.
    if (movable.storage != std::array<absl::int128, 4>{}) movable_.push(movable);
  }

  const SearchSpace& space_;
  std::vector<std::vector<uint32_t>> orders_;
  std::vector<uint32_t> position_;
  std::priority_queue<Movable> movable_;
  Proposal proposal_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Proposer> GridSearchProposer(const SearchSpace& space) {
  return std::make_unique<GridSearch>(space);
}

std::unique_ptr<Proposer> GreedyProposer(const SearchSpace& space, bool by_depth) {
  return std::make_unique<Greedy>(space, by_depth);
}

std::unique_ptr<Proposer> UniformProposer(const SearchSpace& space) {
  return std::make_unique<Uniform>(space);
}

std::unique_ptr<Proposer> DynamicProgrammingProposer(const SearchSpace& space,
                                                     const std::vector<Storage>& capacity) {
  return std::make_unique<DynamicProgramming>(space, capacity);
}

std::unique_ptr<Proposer> MakeProposer(TorchrecProposer kind, SearchSpace* space,
                                       const std::vector<Storage>& capacity,
                                       const CacheModel& caches) {
  switch (kind) {
    case TorchrecProposer::kGridSearch:
      return GridSearchProposer(*space);
    case TorchrecProposer::kGreedy:
      return GreedyProposer(*space, true);
    case TorchrecProposer::kGreedyBySum:
      return GreedyProposer(*space, false);
    case TorchrecProposer::kUniform:
      return UniformProposer(*space);
    case TorchrecProposer::kDynamicProgramming:
      return DynamicProgrammingProposer(*space, capacity);
    case TorchrecProposer::kCacheScaleup:
      return CacheScaleupProposer(space, capacity, caches);
  }
  return GreedyProposer(*space, true);
}

Proposal ProposalOf(const SearchSpace& space, const std::vector<uint32_t>& choice) {
  Proposal proposal;
  proposal.choice.resize(space.size());
  for (uint32_t t = 0; t < space.size(); ++t) AddChoice(space, t, choice[t], &proposal);
  return proposal;
}

}  // namespace hotbed::torchrec
