#include "common/tables/touch_filter_shape.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/tables/shard_record.h"

namespace hotbed {
namespace {

// part[d]: the chance that `probes` draws of `counters` counters are of d different ones.
std::vector<double> Different(uint32_t probes, double counters) {
  std::vector<double> part(probes + 1, 0.0);
  part[0] = 1;
  for (uint32_t draw = 0; draw < probes; ++draw) {
    for (uint32_t d = draw + 1; d > 0; --d) {
      part[d] = part[d] * d / counters + part[d - 1] * (1 - (d - 1) / counters);
    }
    part[0] = 0;
  }
  return part;
}

// f(ids): the chance that an id finds all its counters raised in a block with `ids` others. By
// inclusion and exclusion over its d different counters, each free with (1 - 1 / counters)^draws.
class BlockFalsePositives {
 public:
  explicit BlockFalsePositives(const TouchFilterShape& shape)
      : different_(Different(shape.probes, shape.counters_per_block())) {
    const double counters = shape.counters_per_block();
    for (uint32_t i = 0; i <= shape.probes; ++i) {
      missed_of_id_.push_back(std::pow(1 - i / counters, shape.probes));
    }
    missed_.assign(shape.probes + 1, 1.0);
  }
  double Now() const {
    double sum = 0;
    for (uint32_t d = 1; d < different_.size(); ++d) {
      double all = 0, choose = 1;
      for (uint32_t i = 0; i <= d; ++i) {
        all += (i % 2 == 0 ? choose : -choose) * missed_[i];
        choose = choose * (d - i) / (i + 1);
      }
      sum += different_[d] * std::clamp(all, 0.0, 1.0);
    }
    return sum;
  }
  void AddId() {
    for (size_t i = 0; i < missed_.size(); ++i) missed_[i] *= missed_of_id_[i];
  }

 private:
  const std::vector<double> different_;
  std::vector<double> missed_of_id_;  // by number of counters: an id touches none of them
  std::vector<double> missed_;        // the same of all ids so far
};

}  // namespace

double FalsePositives(const TouchFilterShape& shape, double ids) {
  const double mean = ids / static_cast<double>(shape.Blocks(kBuckets));
  if (mean > shape.counters_per_block()) return 1;
  // The ids of a block are Poisson distributed.
  BlockFalsePositives of_block(shape);
  double chance = std::exp(-mean), sum = 0, left = 1;
  for (uint32_t n = 0; left > 1e-12 && n < 4096; ++n) {
    sum += chance * of_block.Now();
    left -= chance;
    of_block.AddId();
    chance *= mean / (n + 1);
  }
  return std::min(1.0, sum + std::max(0.0, left));
}

TouchFilterShape TouchFilterShapeOf(const TableSpec& spec) {
  const AdmissionParams& admission = spec.life.admission;
  if (!admission.Filters()) return {};
  TableSpec canonical = spec;
  MakeCanonical(&canonical);
  const double ids = static_cast<double>(canonical.life.admission.ids);
  TouchFilterShape shape;
  shape.counter_bits = admission.after < 16 ? 4 : 8;
  const auto suffices = [&](uint32_t blocks) {
    shape.blocks_per_bucket = blocks;
    double least = 1;
    uint32_t best = 1;
    for (shape.probes = 1; shape.probes <= kFilterProbesMax; ++shape.probes) {
      const double part = FalsePositives(shape, ids);
      if (part < least) {
        least = part;
        best = shape.probes;
      }
    }
    shape.probes = best;
    return least <= static_cast<double>(admission.false_positives);
  };
  uint32_t low = 0, high = 1;  // `low` is too few
  while (!suffices(high)) {
    if (high >= kFilterBlocksPerBucketMax) return {};
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  suffices(high);
  return shape;
}

}  // namespace hotbed
