#include "tests/checker/workload.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/random.h"

namespace hotbed::checker {
namespace {

constexpr uint64_t kStepModulus = 1021;
constexpr uint64_t kSquareModulus = 4093;
constexpr uint64_t kTagModulus = 61;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, kColumns> Contribution(uint32_t table, uint64_t row, uint64_t step) {
  const uint64_t s = step % kSquareModulus;
  return {1, static_cast<uint32_t>(step % kStepModulus),
          static_cast<uint32_t>(s * s % kSquareModulus),
          static_cast<uint32_t>(1 + Mix(row * kTables + table + 1) % kTagModulus)};
}

TableSpec Workload::Table(uint32_t table) const {
  TableSpec spec;
  spec.name = table == 0 ? "kill_check_bounded" : "kill_check_hashed";
  spec.hashed = table != 0;
  spec.rows = options_.rows;
  spec.dim = options_.dim;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1.0f;
  spec.initializer.kind = InitializerKind::kZero;
  spec.durability = Durability::kLog;
  return spec;
}

uint64_t Workload::IdOf(uint32_t table, uint64_t row) const {
  return table == 0 ? row : Mix(row + 0x9e3779b97f4a7c15ull);
}

void Workload::FillRows(uint32_t client, uint64_t step, StepBatch* out) const {
  Random random(Mix(options_.seed) ^ Mix((static_cast<uint64_t>(client) << 40) + step));
  for (uint32_t t = 0; t < kTables; ++t) {
    auto& rows = out->parts[t].rows;
    rows.clear();
    for (uint32_t i = 0; i < options_.ids_per_push; ++i) {
      // Low rows are hot; now and then an id comes twice in a batch.
      if (i > 0 && random.OneIn(8)) {
        rows.push_back(rows[random.Uniform(rows.size())]);
      } else {
        const double u = random.Double();
        rows.push_back(static_cast<uint64_t>(options_.rows * u * std::sqrt(u)));
      }
    }
  }
}

void Workload::Fill(uint32_t client, uint64_t step, StepBatch* out) const {
  FillRows(client, step, out);
  for (uint32_t t = 0; t < kTables; ++t) {
    StepBatch::Part& part = out->parts[t];
    part.ids.clear();
    part.gradients.assign(part.rows.size() * options_.dim, 0.0f);
    for (size_t i = 0; i < part.rows.size(); ++i) {
      part.ids.push_back(IdOf(t, part.rows[i]));
      const std::array<uint32_t, kColumns> add = Contribution(t, part.rows[i], step);
      std::copy(add.begin(), add.end(), &part.gradients[i * options_.dim + kColumns * client]);
    }
  }
}

Ledger::Ledger(const Workload* workload, uint32_t first_client, uint32_t clients)
    : workload_(workload),
      first_client_(first_client),
      clients_(clients),
      sums_(kTables * workload->options().rows * clients * kColumns) {}

size_t Ledger::At(uint32_t table, uint64_t row, uint32_t client) const {
  HOTBED_DCHECK(client >= first_client_ && client < first_client_ + clients_);
  return ((table * workload_->options().rows + row) * clients_ + client - first_client_) * kColumns;
}

void Ledger::Add(uint32_t client, uint64_t step) {
  workload_->FillRows(client, step, &scratch_);
  for (uint32_t t = 0; t < kTables; ++t) {
    for (const uint64_t row : scratch_.parts[t].rows) {
      const std::array<uint32_t, kColumns> add = Contribution(t, row, step);
      const size_t at = At(t, row, client);
      for (uint32_t c = 0; c < kColumns; ++c) sums_[at + c] += add[c];
    }
  }
}

absl::Span<const int64_t> Ledger::Of(uint32_t table, uint64_t row, uint32_t client) const {
  return absl::MakeConstSpan(sums_).subspan(At(table, row, client), kColumns);
}

int64_t Ledger::Max() const {
  return sums_.empty() ? 0 : *std::max_element(sums_.begin(), sums_.end());
}

std::string Explain(const Workload& workload, uint32_t table, uint64_t row, uint32_t client,
                    uint64_t last_step, absl::Span<const int64_t> expected,
                    absl::Span<const int64_t> found) {
  StepBatch batch;
  std::string suspects;
  for (uint64_t step = 1; step <= last_step; ++step) {
    workload.FillRows(client, step, &batch);
    const auto& rows = batch.parts[table].rows;
    const int64_t times = std::count(rows.begin(), rows.end(), row);
    if (times == 0) continue;
    const std::array<uint32_t, kColumns> add = Contribution(table, row, step);
    for (const int sign : {-1, 1}) {
      bool fits = true;
      for (uint32_t c = 0; c < kColumns; ++c) {
        fits = fits && found[c] - expected[c] == sign * times * static_cast<int64_t>(add[c]);
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
