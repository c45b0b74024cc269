#include "tests/checker/workload.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/random.h"

namespace hotbed::checker {
namespace {

constexpr uint64_t kStepModulus = 61;
constexpr uint64_t kSquareModulus = 67;
constexpr uint64_t kTagModulus = 61;
constexpr uint64_t kAmountModulus = 7;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The index of a transfer of the part's occurrence `i`, which is no add.
size_t TransferOf(const StepBatch::Part& part, size_t i) { return (i - part.adds) / 2; }

}  // namespace

absl::StatusOr<std::vector<TableKind>> ParseTableKinds(const std::string& words) {
  std::vector<TableKind> kinds;
  for (absl::string_view word : absl::StrSplit(words, ',', absl::SkipEmpty())) {
    TableKind kind;
    kind.word = std::string(word);
    kind.hashed = absl::ConsumeSuffix(&word, "-hashed");
    if (word == "r2" || word == "r3") {
      kind.replicas = word == "r2" ? 2 : 3;
    } else if (word == "dp") {
      kind.data_parallel = true;
    } else if (word != "log") {
      return absl::InvalidArgumentError(
          absl::StrCat("table kind \"", kind.word,
                       "\": there are log, r2, r3 and dp, and each with "
                       "-hashed"));
    }
    kinds.push_back(std::move(kind));
  }
  if (kinds.empty()) return absl::InvalidArgumentError("no table kinds: name at least one");
  return kinds;
}

std::array<int64_t, kColumns> Contribution(uint32_t table, uint64_t row, uint64_t step) {
  const uint64_t s = step % kSquareModulus;
  // The factor spreads the tags; it is unrelated to the number of tables, which must be below 64.
  const uint64_t tag = 1 + Mix(row * 64 + table + 1) % kTagModulus;
  return {1,
          static_cast<int64_t>(step % kStepModulus),
          static_cast<int64_t>(s * s % kSquareModulus),
          static_cast<int64_t>(tag),
          0,
          0};
}

std::array<int64_t, kColumns> Effect(uint32_t table, const StepBatch::Part& part, size_t i,
                                     uint64_t step) {
  if (i < part.adds) return Contribution(table, part.rows[i], step);
  std::array<int64_t, kColumns> effect = {};
  const int64_t amount = 1 + static_cast<int64_t>(step % kAmountModulus);
  const bool gives = (i - part.adds) % 2 == 0;
  effect[TransferOf(part, i) % 2 == 0 ? kPairColumn : kFarColumn] = gives ? -amount : amount;
  return effect;
}

TableSpec Workload::Table(uint32_t table) const {
  const TableKind& kind = options_.tables[table];
  TableSpec spec;
  spec.name = absl::StrCat("check_", kind.word);
  std::replace(spec.name.begin(), spec.name.end(), '-', '_');
  spec.hashed = kind.hashed;
  spec.rows = options_.rows;
  spec.dim = options_.dim;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1.0f;
  spec.initializer.kind = InitializerKind::kZero;
  spec.durability = kind.replicas > 1 ? Durability::kReplicated : Durability::kLog;
  spec.replicas = kind.replicas;
  spec.data_parallel = kind.data_parallel;
  return spec;
}

uint64_t Workload::IdOf(uint32_t table, uint64_t row) const {
  return options_.tables[table].hashed ? Mix(row + 0x9e3779b97f4a7c15ull) : row;
}

void Workload::FillRows(uint32_t client, uint64_t step, StepBatch* out) const {
  Random random(Mix(options_.seed) ^ Mix((static_cast<uint64_t>(client) << 40) + step));
  // Low rows are hot.
  const auto skewed = [&] {
    const double u = random.Double();
    return static_cast<uint64_t>(static_cast<double>(options_.rows) * u * std::sqrt(u));
  };
  out->parts.resize(tables());
  for (StepBatch::Part& part : out->parts) {
    auto& rows = part.rows;
    rows.clear();
    for (uint32_t i = 0; i < options_.ids_per_push; ++i) {
      // Sometimes an id occurs twice in a batch.
      rows.push_back(i > 0 && random.OneIn(8) ? rows[random.Uniform(rows.size())] : skewed());
    }
    part.adds = rows.size();
    for (uint32_t i = 0; i < options_.transfers_per_push; ++i) {
      const uint64_t giver = skewed();
      rows.push_back(giver);
      rows.push_back(i % 2 == 0 ? giver ^ 1 : (giver + options_.rows / 2) % options_.rows);
    }
  }
}

void Workload::Fill(uint32_t client, uint64_t step, StepBatch* out) const {
  FillRows(client, step, out);
  for (uint32_t t = 0; t < tables(); ++t) {
    StepBatch::Part& part = out->parts[t];
    part.ids.clear();
    part.gradients.assign(part.rows.size() * options_.dim, 0.0f);
    for (size_t i = 0; i < part.rows.size(); ++i) {
      part.ids.push_back(IdOf(t, part.rows[i]));
      const std::array<int64_t, kColumns> add = Effect(t, part, i, step);
      for (uint32_t k = 0; k < kColumns; ++k) {
        part.gradients[i * options_.dim + kColumns * client + k] = static_cast<float>(add[k]);
      }
    }
  }
}

Ledger::Ledger(const Workload* workload, uint32_t first_client, uint32_t clients)
    : workload_(workload),
      first_client_(first_client),
      clients_(clients),
      sums_(workload->tables() * workload->options().rows * clients * kColumns) {}

size_t Ledger::At(uint32_t table, uint64_t row, uint32_t client) const {
  HOTBED_DCHECK(client >= first_client_ && client < first_client_ + clients_);
  return ((table * workload_->options().rows + row) * clients_ + client - first_client_) * kColumns;
}

void Ledger::Add(uint32_t client, uint64_t step) {
  workload_->FillRows(client, step, &scratch_);
  for (uint32_t t = 0; t < workload_->tables(); ++t) {
    const StepBatch::Part& part = scratch_.parts[t];
    for (size_t i = 0; i < part.rows.size(); ++i) {
      const std::array<int64_t, kColumns> add = Effect(t, part, i, step);
      const size_t at = At(t, part.rows[i], client);
      for (uint32_t c = 0; c < kColumns; ++c) sums_[at + c] += add[c];
    }
  }
}

absl::Span<const int64_t> Ledger::Of(uint32_t table, uint64_t row, uint32_t client) const {
  return absl::MakeConstSpan(sums_).subspan(At(table, row, client), kColumns);
}

int64_t Ledger::Max() const {
  int64_t max = 0;
  for (const int64_t sum : sums_) max = std::max(max, std::abs(sum));
  return max;
}

std::string Explain(const Workload& workload, uint32_t table, uint64_t row, uint32_t client,
                    uint64_t last_step, absl::Span<const int64_t> expected,
                    absl::Span<const int64_t> found) {
  StepBatch batch;
  std::string suspects;
  for (uint64_t step = 1; step <= last_step; ++step) {
    workload.FillRows(client, step, &batch);
    const StepBatch::Part& part = batch.parts[table];
    std::array<int64_t, kColumns> whole = {};
    bool named = false;
    for (size_t i = 0; i < part.rows.size(); ++i) {
      if (part.rows[i] != row) continue;
      named = true;
      const std::array<int64_t, kColumns> add = Effect(table, part, i, step);
      for (uint32_t c = 0; c < kColumns; ++c) whole[c] += add[c];
    }
    if (!named) continue;
    for (const int sign : {-1, 1}) {
      bool fits = true;
      for (uint32_t c = 0; c < kColumns; ++c) {
        fits = fits && found[c] - expected[c] == sign * whole[c];
      }
      if (fits) {
        absl::StrAppend(&suspects, suspects.empty() ? "" : " or ", "step ", step,
                        sign < 0 ? " lost" : " applied twice");
      }
    }
  }
  return suspects;
}

}  // namespace hotbed::checker
