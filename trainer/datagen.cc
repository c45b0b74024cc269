#include "trainer/datagen.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "row_math/position.h"
#include "trainer/quality.h"

namespace hotbed {
namespace {

constexpr int kPairFields = 10;  // the first ten categorical fields carry the pairwise effects
constexpr double kLinearDeviation = 0.95;  // of the linear logit
constexpr double kPairDeviation = 1.45;    // of the pairwise logit
constexpr double kBias = -1.1;
constexpr double kMissingProbability = 0.04;
constexpr uint64_t kScaleSampleRows = 20000;
// Categories beyond this rank have no effect of their own, because no model could learn it from a
// few occurrences.
constexpr size_t kEffectRanks = 400;

// The number of distinct categories of a field. Fields with pairwise effects are small enough to be
// learnt; others reach Criteo's sizes.
uint32_t Cardinality(int field) {
  static constexpr uint32_t kPair[kPairFields] = {12, 20, 30, 40, 50, 60, 80, 100, 120, 150};
  static constexpr uint32_t kPlain[] = {4, 9, 27, 100, 300, 1000, 1000, 3000, 5000, 10000};
  return field < kPairFields ? kPair[field] : kPlain[(field - kPairFields) % 10];
}

double ZipfExponent(int field) {
  return field < kPairFields ? 0.85 + 0.05 * (field % 8) : 1.1 + 0.05 * (field % 6);
}

double Normal(Random* random) {
  const double u = 1.0 - random->Double();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * random->Double());
}

void WriteField(std::string* line, int64_t value, bool hexadecimal, int field) {
  line->push_back('\t');
  if (value < 0) return;
  char text[24];
  if (hexadecimal) {
    const uint64_t token =
        Mix64((static_cast<uint64_t>(field) << 40) | static_cast<uint64_t>(value));
    std::snprintf(text, sizeof(text), "%08" PRIx32, static_cast<uint32_t>(token));
  } else {
    std::snprintf(text, sizeof(text), "%" PRId64, value);
  }
  line->append(text);
}

void WriteRow(const PlantedRow& row, std::string* line) {
  line->assign(1, row.label ? '1' : '0');
  for (int f = 0; f < kCriteoIntegers; ++f) WriteField(line, row.integers[f], false, f);
  for (int f = 0; f < kCriteoCategories; ++f) WriteField(line, row.categories[f], true, f);
  line->push_back('\n');
}

// The integer enters the logit through the curve that trainers use for buckets.
float IntegerCurve(int64_t value) {
  const float l = std::log(1.0f + static_cast<float>(value));
  return l;
}

}  // namespace

AliasSampler::AliasSampler(const std::vector<double>& weights)
    : keep_(weights.size()), alias_(weights.size()) {
  double sum = 0;
  for (double w : weights) sum += w;
  std::vector<uint32_t> small, large;
  for (uint32_t i = 0; i < weights.size(); ++i) {
    keep_[i] = weights[i] * static_cast<double>(weights.size()) / sum;
    alias_[i] = i;
    (keep_[i] < 1.0 ? small : large).push_back(i);
  }
  while (!small.empty() && !large.empty()) {
    const uint32_t s = small.back(), l = large.back();
    small.pop_back();
    alias_[s] = l;
    keep_[l] -= 1.0 - keep_[s];
    if (keep_[l] < 1.0) {
      large.pop_back();
      small.push_back(l);
    }
  }
  for (uint32_t i : small) keep_[i] = 1.0;
  for (uint32_t i : large) keep_[i] = 1.0;
}

uint32_t AliasSampler::Draw(Random* random) const {
  const uint32_t i = static_cast<uint32_t>(random->Uniform(keep_.size()));
  return random->Double() < keep_[i] ? i : alias_[i];
}

PlantedModel::PlantedModel(uint64_t seed) : random_(Mix64(seed)) {
  Random plant(Mix64(seed ^ 0x706c616e74ull));
  for (int f = 0; f < kCriteoCategories; ++f) PlantField(f, &plant);
  for (float& slope : integer_slopes_) slope = static_cast<float>(Normal(&plant));
  ScaleEffects();
}

void PlantedModel::PlantField(int field, Random* random) {
  Category& category = categories_[field];
  const uint32_t n = Cardinality(field);
  std::vector<double> weights(n);
  double sum = 0;
  for (uint32_t r = 0; r < n; ++r) sum += weights[r] = std::pow(r + 1.0, -ZipfExponent(field));
  category.sampler = AliasSampler(weights);
  category.linear.assign(n, 0.0f);
  double mean = 0;
  for (uint32_t r = 0; r < std::min<size_t>(n, kEffectRanks); ++r) {
    category.linear[r] = static_cast<float>(Normal(random));
    mean += category.linear[r] * weights[r] / sum;
  }
  for (uint32_t r = 0; r < std::min<size_t>(n, kEffectRanks); ++r)
    category.linear[r] -= static_cast<float>(mean);
  if (field >= kPairFields) return;

  category.factors.resize(n);
  std::array<double, kPlantedRank> centre{};
  for (uint32_t r = 0; r < n; ++r) {
    for (int k = 0; k < kPlantedRank; ++k) {
      category.factors[r][k] = static_cast<float>(Normal(random));
      centre[k] += category.factors[r][k] * weights[r] / sum;
    }
  }
  for (auto& factor : category.factors) {
    for (int k = 0; k < kPlantedRank; ++k) factor[k] -= static_cast<float>(centre[k]);
  }
}

// Scales the two parts of the logit to their planned deviations, measured on a sample of the model.
void PlantedModel::ScaleEffects() {
  const Random saved = random_;
  double linear = 0, linear2 = 0, pair2 = 0;
  for (uint64_t i = 0; i < kScaleSampleRows; ++i) {
    const PlantedRow row = Draw();
    const double pair = row.logit - row.linear;
    linear += row.linear;
    linear2 += double{row.linear} * row.linear;
    pair2 += pair * pair;
  }
  random_ = saved;
  const double n = static_cast<double>(kScaleSampleRows);
  const double mean = linear / n;
  const float linear_scale =
      static_cast<float>(kLinearDeviation / std::sqrt(linear2 / n - mean * mean));
  const float factor_scale = static_cast<float>(std::sqrt(kPairDeviation / std::sqrt(pair2 / n)));
  for (Category& category : categories_) {
    for (float& w : category.linear) w *= linear_scale;
    for (auto& factor : category.factors) {
      for (float& v : factor) v *= factor_scale;
    }
  }
  for (float& slope : integer_slopes_) slope *= linear_scale;
  bias_ = static_cast<float>(kBias - mean * linear_scale);
}

PlantedRow PlantedModel::Draw() {
  PlantedRow row;
  row.linear = bias_;
  for (int f = 0; f < kCriteoIntegers; ++f) {
    const bool missing = random_.Double() < kMissingProbability;
    const double value = std::exp(1.0 + 0.25 * f + 0.8 * Normal(&random_)) - 1.0;
    row.integers[f] = missing ? -1 : std::max<int64_t>(0, std::llround(value));
    if (!missing) row.linear += 0.35f * integer_slopes_[f] * IntegerCurve(row.integers[f]);
  }
  std::array<float, kPlantedRank> sum{};
  float squares = 0;
  for (int f = 0; f < kCriteoCategories; ++f) {
    const Category& category = categories_[f];
    const bool missing = f >= kPairFields && random_.Double() < kMissingProbability;
    const uint32_t rank = category.sampler.Draw(&random_);
    row.categories[f] = missing ? -1 : rank;
    if (missing) continue;
    row.linear += category.linear[rank];
    if (category.factors.empty()) continue;
    for (int k = 0; k < kPlantedRank; ++k) {
      const float v = category.factors[rank][k];
      sum[k] += v;
      squares += v * v;
    }
  }
  float pairs = -squares;
  for (float s : sum) pairs += s * s;
  row.logit = row.linear + 0.5f * pairs;
  row.label = random_.Double() < 1.0 / (1.0 + std::exp(-double{row.logit}));
  return row;
}

absl::StatusOr<CriteoDatagenReport> GenerateCriteo(const CriteoDatagenOptions& options,
                                                   std::ostream* out) {
  if (options.rows == 0) return absl::InvalidArgumentError("--rows is 0: must be at least 1");
  // Scores of at most this many rows are kept for the AUCs, at 12 bytes per row.
  constexpr uint64_t kScoredRowsMax = 4000000;
  PlantedModel model(options.seed);
  BinaryScores best, linear;
  CriteoDatagenReport report;
  std::string line;
  uint64_t positives = 0;
  for (uint64_t i = 0; i < options.rows; ++i) {
    const PlantedRow row = model.Draw();
    WriteRow(row, &line);
    out->write(line.data(), static_cast<std::streamsize>(line.size()));
    if (!out->good()) {
      return absl::UnavailableError(
          absl::StrCat("writing row ", i + 1, " of ", options.rows, " failed: is the disk full?"));
    }
    report.bytes += line.size();
    positives += row.label;
    if (i < kScoredRowsMax) {
      best.Add(row.logit, row.label);
      linear.Add(row.linear, row.label);
    }
    if (options.progress && (i + 1) % 8192 == 0) options.progress(i + 1);
  }
  report.rows = options.rows;
  report.positive_fraction = static_cast<double>(positives) / static_cast<double>(options.rows);
  report.auc_best = best.Auc();
  report.auc_linear = linear.Auc();
  return report;
}

}  // namespace hotbed
