// The client's work on a trainer's batch, without the network: 26 features of 26 tables x 2,048
// bags x 20 ids, dim 64, ids of a million, Zipf 1.05 or uniform. Rates are per second of the
// thread's processor time.
//
//   embedding_bench [-o json] [--quick]
//
// Backward removes duplicates, cuts by shard, and sums gradients of bags by row into message
// buffers; its roof is only the sums, by plain loops over an index of occurrences made before.
// Forward pools bags from rows in memory and is compared with the same loop.
//
// Pulls of composed tables on the local engine, where no network hides the work of the client, are
// compared with the plain pulls that they are made of: the rows of each part for the same ids, in
// one call. Medians of interleaved rounds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/ratio_table.h"
#include "client/batch/gradient_sum.h"
#include "client/embedding/embedding_batch.h"
#include "client/embedding/embedding_pool.h"
#include "common/check.h"
#include "common/random.h"
#include "common/zipf.h"
#include "hotbed/composed.h"
#include "hotbed/local.h"

#if defined(__x86_64__)
#define HOTBED_BENCH_LOOP __attribute__((target("avx2"), optimize("O3")))
#else
#define HOTBED_BENCH_LOOP __attribute__((optimize("O3")))
#endif

namespace hotbed {
namespace {

constexpr uint32_t kTables = 26;
constexpr uint32_t kBags = 2048;
constexpr uint32_t kIdsPerBag = 20;
constexpr uint32_t kDim = 64;
constexpr uint32_t kShards = 8;
constexpr uint64_t kIds = uint64_t{kTables} * kBags * kIdsPerBag;

// sum += row, for each row.
HOTBED_BENCH_LOOP void PlainSum(const float* const* rows, uint32_t n, float* sum) {
  float total[kDim] = {};
  for (uint32_t k = 0; k < n; ++k) {
    for (uint32_t d = 0; d < kDim; ++d) total[d] += rows[k][d];
  }
  std::copy(total, total + kDim, sum);
}

struct Batch {
  ClusterMapHolder map;
  std::vector<std::unique_ptr<TableHandle>> tables;
  std::vector<EmbeddingFeature> embeddings;
  JaggedBatch jagged;
  std::vector<BoundFeature> bound;
  std::vector<BagGradient> bags;
  std::vector<float> gradients = std::vector<float>(uint64_t{kBags} * kTables * kDim, 0.5f);
  std::vector<FeatureIds> features;
  std::vector<PushFeature> pushes;
};

// An exponent of 0: uniform ids.
std::unique_ptr<Batch> MakeBatch(double exponent) {
  auto batch = std::make_unique<Batch>();
  Random random(7);
  const ZipfSampler zipf(exponent, 1'000'000);
  MapUpdate update;
  update.plan_revision = 1;
  batch->jagged.batch_size = kBags;
  batch->jagged.lengths.assign(kTables * kBags, kIdsPerBag);
  for (uint64_t i = 0; i < kIds; ++i) batch->jagged.ids.push_back(zipf.Sample(random));
  for (uint32_t t = 0; t < kTables; ++t) {
    TableSpec spec;
    spec.id = t + 1;
    spec.name = "t" + std::to_string(t);
    spec.hashed = true;
    spec.dim = kDim;
    for (uint32_t s = 0; s < kShards; ++s) {
      ShardRecord record;
      record.shard = {spec.id, s};
      record.range = {65536 * s / kShards, 65536 * (s + 1) / kShards, 0, kDim};
      record.epoch = 1;
      update.shards.push_back(record);
    }
    update.tables.push_back(spec);
    batch->tables.push_back(std::make_unique<TableHandle>(nullptr, spec, kShards));
    batch->jagged.keys.push_back("f" + std::to_string(t));
    batch->embeddings.push_back({batch->jagged.keys.back(), batch->tables.back().get()});
  }
  batch->map.Apply(update);
  if (!BindBatch(batch->embeddings, batch->jagged, &batch->bound).ok()) return nullptr;
  batch->bags.resize(kTables);
  for (uint32_t t = 0; t < kTables; ++t) {
    DescribeBags(batch->bound[t], &batch->bags[t]);
    PushFeature push{batch->tables[t].get(), batch->bound[t].ids,
                     batch->gradients.data() + t * kDim};
    push.gradient_rows = batch->bags[t].rows.data();
    push.gradient_row_count = kBags;
    push.gradient_stride = kTables * kDim;
    batch->pushes.push_back(push);
    batch->features.push_back({batch->tables[t].get(), batch->bound[t].ids});
  }
  return batch;
}

// The rows of a table's sums, and the gradients that each is made of.
struct Occurrences {
  std::vector<uint32_t> begin;
  std::vector<const float*> rows;
};

Occurrences FindOccurrences(const TableGroup& group, const Batch& batch) {
  Occurrences out;
  const PushFeature& push = batch.pushes[group.runs[0].feature];
  for (uint32_t u : group.split.order) {
    out.begin.push_back(static_cast<uint32_t>(out.rows.size()));
    for (uint32_t i = group.ids.first[u]; i != kNoIndex; i = group.ids.next[i]) {
      out.rows.push_back(push.gradients + push.gradient_stride * push.gradient_rows[i]);
    }
  }
  out.begin.push_back(static_cast<uint32_t>(out.rows.size()));
  return out;
}

// The gradients that a push without gradient_rows would need.
void WriteEach(const Batch& batch) {
  static std::vector<float> each(uint64_t{kBags} * kIdsPerBag * kDim);
  for (const PushFeature& push : batch.pushes) {
    for (size_t i = 0; i < push.ids.size(); ++i) {
      const float* const row = push.gradients + push.gradient_stride * push.gradient_rows[i];
      std::copy(row, row + kDim, each.data() + i * kDim);
    }
  }
}

void MeasureBackward(const Batch& batch, const std::string& ids, bench::RatioTable* table) {
  const ClusterMapPtr map = batch.map.Get();
  Deduper deduper;
  BatchPlan plan;
  plan.Build(batch.features, *map, &deduper, RowType::kFp32, 1 << 20);
  std::vector<Occurrences> occurrences;
  for (const TableGroup& group : plan.groups()) {
    occurrences.push_back(FindOccurrences(group, batch));
  }
  std::vector<float> out(plan.unique_rows() * kDim);
  GradientSum sum(batch.pushes, 1.0f, RowType::kFp32);
  const auto gather = [&] {
    auto* to = reinterpret_cast<uint8_t*>(out.data());
    for (const PlanPart& part : plan.parts()) {
      sum.Gather(plan.group(part), part, {}, to);
      to += uint64_t{part.rows()} * kDim * 4;
    }
    return static_cast<double>(kIds);
  };
  const auto roof = [&] {
    float* to = out.data();
    for (const Occurrences& of : occurrences) {
      for (size_t r = 0; r + 1 < of.begin.size(); ++r, to += kDim) {
        PlainSum(of.rows.data() + of.begin[r], of.begin[r + 1] - of.begin[r], to);
      }
    }
    return static_cast<double>(kIds);
  };
  std::fprintf(stderr, "%llu ids, %llu distinct rows\n", static_cast<unsigned long long>(kIds),
               static_cast<unsigned long long>(plan.unique_rows()));
  table->Measure({.name = "backward: sums into buffers" + ids,
                  .roof = "sums alone, occurrences known",
                  .unit = "ids",
                  .clock = bench::RateClock::kThread},
                 gather, roof);
  table->Measure(
      {.name = "backward: duplicates, split and sums" + ids,
       .roof = "sums alone, occurrences known",
       .unit = "ids",
       .bar = 0.8,
       .clock = bench::RateClock::kThread},
      [&] {
        plan.Build(batch.features, *map, &deduper, RowType::kFp32, 1 << 20);
        return gather();
      },
      roof);
  std::vector<BoundFeature> bound;
  BagGradient bags;
  table->Measure(
      {.name = "backward: the batch checked and bound too" + ids,
       .roof = "sums alone, occurrences known",
       .unit = "ids",
       .clock = bench::RateClock::kThread},
      [&] {
        if (!BindBatch(batch.embeddings, batch.jagged, &bound).ok()) return 0.0;
        for (const BoundFeature& feature : bound) DescribeBags(feature, &bags);
        plan.Build(batch.features, *map, &deduper, RowType::kFp32, 1 << 20);
        return gather();
      },
      roof);
  table->Measure({.name = "backward: sums into buffers" + ids,
                  .roof = "a gradient an id written first, then the same",
                  .unit = "ids",
                  .clock = bench::RateClock::kThread},
                 gather, [&] {
                   WriteEach(batch);
                   return gather();
                 });
}

void MeasureForward(const Batch& batch, const std::string& ids, bench::RatioTable* table) {
  Deduper deduper;
  std::vector<std::vector<uint32_t>> index(kTables);
  std::vector<std::vector<float>> rows(kTables);
  for (uint32_t t = 0; t < kTables; ++t) {
    std::vector<uint64_t> unique;
    index[t].resize(batch.bound[t].ids.size());
    const IdsPart part{batch.bound[t].ids, nullptr};
    deduper.RunIndexed({&part, 1}, &unique, index[t].data());
    rows[t].assign(unique.size() * kDim, 0.25f);
  }
  std::vector<float> out(uint64_t{kBags} * kTables * kDim);
  table->Measure(
      {.name = "forward: bags pooled from distinct rows" + ids,
       .roof = "a plain gather-and-add loop",
       .unit = "ids",
       .clock = bench::RateClock::kThread},
      [&] {
        for (uint32_t t = 0; t < kTables; ++t) {
          PoolBags(batch.bound[t], {rows[t].data(), index[t].data()}, out.data() + t * kDim,
                   kTables * kDim, nullptr);
        }
        return static_cast<double>(kIds);
      },
      [&] {
        const float* bag[kIdsPerBag];
        for (uint32_t t = 0; t < kTables; ++t) {
          for (uint32_t b = 0; b < kBags; ++b) {
            for (uint32_t k = 0; k < kIdsPerBag; ++k) {
              bag[k] = rows[t].data() + uint64_t{index[t][b * kIdsPerBag + k]} * kDim;
            }
            PlainSum(bag, kIdsPerBag, out.data() + (uint64_t{b} * kTables + t) * kDim);
          }
        }
        return static_cast<double>(kIds);
      });
}

// --- composed tables

constexpr uint64_t kComposedRows = 1'000'000;
constexpr uint32_t kComposedIds = 2048;
constexpr double kComposedBar = 1 / 1.15;

struct ComposedCase {
  const char* name;
  TableOptions options;
};

std::vector<ComposedCase> ComposedCases() {
  std::vector<ComposedCase> cases;
  const auto add = [&](const char* name, ComposeForm form) -> Composition& {
    TableOptions options;
    options.name = "c" + std::to_string(cases.size());
    options.rows = kComposedRows;
    options.dim = kDim;
    options.durability = Durability::kCheckpoint;
    options.composition.form = form;
    cases.push_back({name, options});
    return cases.back().options.composition;
  };
  add("composed pull: quotient * remainder", ComposeForm::kQuotientRemainder);
  add("composed pull: quotient | remainder", ComposeForm::kQuotientRemainder).combine =
      Combine::kConcatenate;
  add("composed pull: blocks of 16 and a map", ComposeForm::kBlock).block_dims = {16};
  return cases;
}

void MeasureComposed(const ComposedCase& one, Client* client, bench::RatioTable* table) {
  const auto made = client->CreateTable(one.options);
  HOTBED_CHECK(made.ok()) << made.status().ToString();
  const absl::Span<const Table* const> parts = ComposedTable::From(*made)->parts();
  Random random(5);
  const ZipfSampler zipf(1.05, kComposedRows);
  std::vector<uint64_t> ids(kComposedIds);
  for (uint64_t& id : ids) id = zipf.Sample(random);
  std::vector<float> out(kComposedIds * kDim);
  const PullFeature composed{*made, ids, out.data()};
  std::vector<std::vector<uint64_t>> part_ids(parts.size());
  std::vector<std::vector<float>> rows(parts.size());
  std::vector<PullFeature> plain;
  for (size_t p = 0; p < parts.size(); ++p) {
    const bool quotient = one.options.composition.form == ComposeForm::kQuotientRemainder;
    const uint64_t buckets = (*made)->options().composition.buckets;
    if (quotient) {
      for (const uint64_t id : ids) part_ids[p].push_back(p == 0 ? id / buckets : id % buckets);
    } else if (p == 0) {
      part_ids[p] = ids;
    } else {
      for (uint64_t row = 0; row < kDim; ++row) part_ids[p].push_back(row);
    }
    rows[p].resize(part_ids[p].size() * parts[p]->dim());
    plain.push_back({parts[p], part_ids[p], rows[p].data()});
  }
  const auto pull = [client](absl::Span<const PullFeature> features) {
    const absl::Status pulled = client->Pull(features).Wait();
    HOTBED_CHECK(pulled.ok()) << pulled.ToString();
    return double{kComposedIds};
  };
  table->Measure(
      {.name = one.name,
       .roof = "the same rows of the parts, pulled as they are",
       .unit = "ids",
       .bar = kComposedBar},
      [&] {
        return pull({&composed, 1});
      },
      [&] { return pull(plain); });
}

int Main(int argc, char** argv) {
  std::string output;
  bool quick = false;
  CLI::App app;
  app.add_option("-o", output);
  app.add_flag("--quick", quick);
  CLI11_PARSE(app, argc, argv);
  // Short turns, so that other load is on both sides alike.
  bench::RatioTable table(quick ? 3 : 15, quick ? 0.02 : 0.1);
  for (const double exponent : {1.05, 0.0}) {
    const std::unique_ptr<Batch> batch = MakeBatch(exponent);
    if (batch == nullptr) return 1;
    const std::string ids = exponent > 0 ? ", Zipf" : ", uniform";
    MeasureBackward(*batch, ids, &table);
    MeasureForward(*batch, ids, &table);
  }
  const auto client = ConnectLocal("", {.host_bytes = 512 << 20}, {});
  HOTBED_CHECK(client.ok()) << client.status().ToString();
  for (const ComposedCase& one : ComposedCases()) MeasureComposed(one, client->get(), &table);
  table.Print(output);
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
