// Generates data in Criteo's format whose labels come from a planted model, so that the best
// possible AUC is known.
//
// The planted logit of a row is bias + linear(row) + pairs(row). Fields are drawn independently:
// categories from Zipf distributions, integers from rounded log-normals. `pairs` is a factorization
// of rank kPlantedRank over ten of the categorical fields whose factors are centred under each
// field's own distribution. So pairs(row) has mean zero given any single field, and no sum of
// per-field terms (a linear model over one-hot fields) can reproduce it. The label is a coin with
// probability sigmoid(logit).
//
// Hence, on any sample, the AUC of the planted logit is the best that a model can be expected to
// reach, and the AUC of bias + linear is the best of linear models.
#ifndef HOTBED_TRAINER_DATAGEN_H_
#define HOTBED_TRAINER_DATAGEN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/random.h"

namespace hotbed {

constexpr int kCriteoIntegers = 13;
constexpr int kCriteoCategories = 26;
constexpr int kPlantedRank = 2;

// One drawn row, before it is written. -1 stands for an empty field.
struct PlantedRow {
  std::array<int64_t, kCriteoIntegers> integers;
  std::array<int64_t, kCriteoCategories>
      categories;    // rank of the category in its field, 0 the most frequent
  float linear = 0;  // bias included
  float logit = 0;
  bool label = false;
};

// Draws from one discrete distribution in constant time (Walker's alias method, Vose's
// construction).
class AliasSampler {
 public:
  AliasSampler() = default;
  explicit AliasSampler(const std::vector<double>& weights);
  uint32_t Draw(Random* random) const;

 private:
  std::vector<double> keep_;
  std::vector<uint32_t> alias_;
};

// Thread-compatible: one generator per thread. Equal seeds give equal rows.
class PlantedModel {
 public:
  explicit PlantedModel(uint64_t seed);
  PlantedRow Draw();

 private:
  struct Category {
    AliasSampler sampler;
    std::vector<float> linear;
    std::vector<std::array<float, kPlantedRank>> factors;  // empty: not in pairs
  };
  void PlantField(int field, Random* random);
  void ScaleEffects();

  Random random_;
  std::array<Category, kCriteoCategories> categories_;
  std::array<float, kCriteoIntegers> integer_slopes_;
  float bias_ = 0;
};

struct CriteoDatagenOptions {
  uint64_t rows = 500000;
  uint64_t seed = 1;
  std::function<void(uint64_t rows_done)> progress;  // called at times; may be empty
};

struct CriteoDatagenReport {
  uint64_t rows = 0;
  uint64_t bytes = 0;
  double positive_fraction = 0;
  double auc_best = 0;    // of the planted logit on these rows
  double auc_linear = 0;  // of bias + linear on these rows
};

// Writes tab-separated lines: label, 13 integers, 26 hexadecimal categories; missing values are
// empty. InvalidArgument for zero rows. Unavailable names the row where the stream failed (disk
// full).
absl::StatusOr<CriteoDatagenReport> GenerateCriteo(const CriteoDatagenOptions& options,
                                                   std::ostream* out);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_DATAGEN_H_
