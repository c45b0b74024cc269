#include "planner/torchrec/cache_scaleup.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hotbed::torchrec {
namespace {

constexpr int kIterationsMax = 16;
constexpr uint32_t kSeed = 42;
constexpr int kRoundsMax = 128;
constexpr double kAllRows = 0.9999;
constexpr double kUnplaceable = 1e99;
// Where the linear model of a table's memory is measured.
constexpr double kLowRatio = 0.1;
constexpr double kHighRatio = 0.9;

class CacheScaleup final : public Proposer {
 public:
  CacheScaleup(SearchSpace* space, const std::vector<Storage>& capacity, const CacheModel& caches)
      : space_(*space), caches_(caches) {
    for (const Storage& rank : capacity) room_ += rank.hbm;
    for (const auto& options : space_) given_.push_back(options.size());
  }

  const Proposal* Current() override {
    if (start_.empty() && !space_.empty()) Start();
    return done_ || space_.empty() ? nullptr : &proposal_;
  }

  void Learn(std::optional<double> rating_ms) override {
    const absl::int128 used = proposal_.storage.hbm;
    if (!search_) {
      if (!rating_ms) return;
      start_hbm_ = used;
      const absl::int128 room = std::min(room_ - used, MeasureScaling());
      search_.emplace(0, static_cast<double>(room), kIterationsMax, kSeed, rating_ms);
    } else if (!rating_ms) {
      search_->ShrinkRight(static_cast<double>(used - start_hbm_));
    }
    budget_ = search_->Next(rating_ms.value_or(kUnplaceable));
  }

  void Next() override {
    done_ = !budget_ || scaling_.empty();
    if (done_) return;
    const std::vector<double> ratios = AllocateCaches(scaling_, std::trunc(*budget_));
    std::vector<uint32_t> choice = start_;
    for (size_t i = 0; i < ratios.size(); ++i) {
      const uint32_t t = scaling_tables_[i];
      if (ratios[i] > kAllRows) {
        choice[t] = fused_[i];
      } else if (ratios[i] != scaling_[i].ratio) {
        choice[t] = WithRatio(t, ratios[i]);
      }
    }
    proposal_ = ProposalOf(space_, choice);
    budget_.reset();
  }

 private:
  const ShardingOption& StartOption(uint32_t t) const { return space_[t][start_[t]]; }

  void Start() {
    for (uint32_t t = 0; t < space_.size(); ++t) {
      start_.push_back(Fastest(t));
      if (StartOption(t).kernel != Kernel::kFusedUvmCaching) continue;
      const ShardingOption fused =
          caches_.estimate(t, StartOption(t), Kernel::kFused, std::nullopt);
      if (fused.sum.hbm < StartOption(t).sum.hbm) start_[t] = Fused(t);
    }
    proposal_ = ProposalOf(space_, start_);
  }

  uint32_t Fastest(uint32_t t) const {
    uint32_t best = 0;
    for (uint32_t o = 1; o < given_[t]; ++o) {
      const bool cached = space_[t][o].kernel == Kernel::kFusedUvmCaching;
      const bool best_cached = space_[t][best].kernel == Kernel::kFusedUvmCaching;
      if (cached != best_cached ? cached : space_[t][o].shard_ms < space_[t][best].shard_ms) {
        best = o;
      }
    }
    return best;
  }

  // Fills in scaling_. The bytes that fused kernels would take beyond the first proposal.
  absl::int128 MeasureScaling() {
    absl::int128 more = 0;
    for (uint32_t t = 0; t < space_.size(); ++t) {
      const TableCache& cache = caches_.tables[t];
      if (StartOption(t).kernel != Kernel::kFusedUvmCaching) continue;
      if (!(cache.priority > 0 && cache.ratio > 0)) continue;
      scaling_tables_.push_back(t);
      fused_.push_back(Fused(t));
      const absl::int128 fused = space_[t][fused_.back()].sum.hbm;
      more += fused - StartOption(t).sum.hbm;
      ScalingCache scaling{
          .fused = static_cast<double>(fused), .ratio = cache.ratio, .priority = cache.priority};
      const double low = HbmAt(t, kLowRatio);
      scaling.per_ratio = (HbmAt(t, kHighRatio) - low) / (kHighRatio - kLowRatio);
      scaling.fixed = low - scaling.per_ratio * kLowRatio;
      scaling_.push_back(scaling);
    }
    return more;
  }

  double HbmAt(uint32_t t, double ratio) const {
    return static_cast<double>(
        caches_.estimate(t, StartOption(t), Kernel::kFusedUvmCaching, ratio).sum.hbm);
  }

  // The index of the table's option without a cache; one that the enumerator has made if it can be.
  uint32_t Fused(uint32_t t) {
    const Sharding sharding = StartOption(t).sharding;
    for (uint32_t o = 0; o < space_[t].size(); ++o) {
      const ShardingOption& option = space_[t][o];
      if (option.sharding == sharding && option.kernel == Kernel::kFused) return o;
    }
    return Add(t, caches_.estimate(t, StartOption(t), Kernel::kFused, std::nullopt));
  }

  uint32_t WithRatio(uint32_t t, double ratio) {
    for (auto o = static_cast<uint32_t>(given_[t]); o < space_[t].size(); ++o) {
      if (space_[t][o].cache_ratio == ratio) return o;
    }
    ShardingOption option = caches_.estimate(t, StartOption(t), Kernel::kFusedUvmCaching, ratio);
    option.cache_ratio = ratio;
    return Add(t, std::move(option));
  }

  uint32_t Add(uint32_t t, ShardingOption option) {
    space_[t].push_back(std::move(option));
    return static_cast<uint32_t>(space_[t].size() - 1);
  }

  SearchSpace& space_;
  const CacheModel& caches_;
  absl::int128 room_ = 0;      // device bytes of all ranks
  std::vector<size_t> given_;  // by table: the enumerator's options
  std::vector<uint32_t> start_;
  absl::int128 start_hbm_ = 0;
  std::vector<uint32_t> scaling_tables_;
  std::vector<ScalingCache> scaling_;  // of these tables
  std::vector<uint32_t> fused_;        // of these tables: the option without a cache
  std::optional<LuusJaakolaSearch> search_;
  std::optional<double> budget_;
  Proposal proposal_;
  bool done_ = false;
};

}  // namespace

LuusJaakolaSearch::LuusJaakolaSearch(double left, double right, int iterations_max, uint32_t seed,
                                     std::optional<double> left_cost)
    : left_(left),
      right_(right),
      iterations_max_(iterations_max),
      random_(seed),
      left_known_(left_cost.has_value()),
      reach_(right - left) {
  best_ = Uniform(left_, right_);
}

double LuusJaakolaSearch::Uniform(double first, double limit) {
  constexpr uint32_t kMantissa = (uint32_t{1} << 24) - 1;  // of the float that PyTorch draws
  return first + (limit - first) * ((random_() & kMantissa) * 0x1p-24);
}

void LuusJaakolaSearch::ShrinkRight(double right) {
  right_ = right;
  right_known_ = true;
  reach_ = right_ - left_;
  best_ = std::max(left_, std::min(best_, right_));
}

std::optional<double> LuusJaakolaSearch::Next(double cost) {
  ++iteration_;
  if (iteration_ == 0) return best_;
  if (iteration_ == 1) {
    best_cost_ = cost;
  } else if (iteration_ == iterations_max_) {
    return std::nullopt;
  } else if (cost <= best_cost_) {
    best_ = *tried_;
    best_cost_ = cost;
    reach_ *= 0.95;
  }
  if (tried_ == left_) left_known_ = true;
  if (tried_ == right_) right_known_ = true;
  if (!(left_ < right_)) return std::nullopt;
  for (;;) {
    const double place = std::max(left_, std::min(best_ + Uniform(-reach_, reach_), right_));
    // The ends are tried once.
    if ((place == left_ && left_known_) || (place == right_ && right_known_)) continue;
    tried_ = place;
    return place;
  }
}

std::vector<double> AllocateCaches(const std::vector<ScalingCache>& caches, double budget) {
  std::vector<double> ratios;
  for (const ScalingCache& cache : caches) ratios.push_back(cache.ratio);
  for (int round = 0; round < kRoundsMax && budget > 1; ++round) {
    double priorities = 0;
    for (size_t i = 0; i < caches.size(); ++i) {
      if (ratios[i] < 1 && caches[i].per_ratio > 0) priorities += caches[i].priority;
    }
    if (priorities <= 0) break;
    const double dealt = budget;
    for (size_t i = 0; i < caches.size(); ++i) {
      const ScalingCache& cache = caches[i];
      if (ratios[i] >= 1 || cache.per_ratio <= 0) continue;
      const double share = dealt * (cache.priority / priorities);
      const double ratio = std::min(1.0, ratios[i] + share / cache.per_ratio);
      budget -= (ratio - ratios[i]) * cache.per_ratio;
      ratios[i] = ratio;
      const double beyond_fused = cache.fixed + ratio * cache.per_ratio - cache.fused;
      if (beyond_fused < -(1 - kAllRows) * cache.fused) continue;
      budget += beyond_fused;
      ratios[i] = 1;
    }
  }
  return ratios;
}

std::unique_ptr<Proposer> CacheScaleupProposer(SearchSpace* space,
                                               const std::vector<Storage>& capacity,
                                               const CacheModel& caches) {
  return std::make_unique<CacheScaleup>(space, capacity, caches);
}

}  // namespace hotbed::torchrec
