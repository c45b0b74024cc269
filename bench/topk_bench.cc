// Top-k against the memory: how fast rows are compared with a vector on one core, to how fast the
// same bytes are read.
//
//   topk_bench [--rows=1000000] [--dim=64] [--k=100] [--seconds=0.5] [--rounds=7]
//              [--only=PART]
//
// `rows` is the kernel with the choice of the nearest, over rows that lie one after another.
// `call` is the whole answer of a server for a table of one shard in memory, without the network:
// on its strand, step by step. `served` is the search of a copy for inference. All are compared
// with PlainRead of as many bytes, in turns.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "bench/bench_host.h"
#include "bench/ratio_table.h"
#include "bench/roofs/plain_loops.h"
#include "common/check.h"
#include "common/huge_buffer.h"
#include "common/process_tuning.h"
#include "common/random.h"
#include "row_math/half.h"
#include "server/export/top_k_calls.h"
#include "server/tiers/api/row_ranking.h"
#include "serving/rows/row_search.h"

namespace hotbed {
namespace {

struct Flags {
  uint32_t rows = 1'000'000;
  uint32_t dim = 64;
  uint32_t k = 100;
  double seconds = 0.5;
  int rounds = 7;
  std::string only;  // part of the names of the measures to run; empty: all
  std::string output;
};

constexpr double kBar = 0.8;
constexpr uint64_t kUncachedBytes = 512 << 20;

float AnyValue(Random* random) { return static_cast<float>(random->Uniform(2001)) / 1000 - 1; }

std::vector<float> AnyVector(uint32_t dim, Random* random) {
  std::vector<float> vector(dim);
  for (float& element : vector) element = AnyValue(random);
  return vector;
}

const char* NameOf(WeightType type) {
  return type == WeightType::kFp32 ? "fp32" : type == WeightType::kFp16 ? "fp16" : "bf16";
}

const char* NameOf(RowMetric metric) {
  return metric == RowMetric::kDot ? "dot" : metric == RowMetric::kCosine ? "cosine" : "l2";
}

uint64_t parity = 0;  // so that nothing is left out

bench::Work Reads(const uint8_t* memory, uint64_t bytes, uint32_t rows) {
  return [=] {
    parity ^= bench::PlainRead(reinterpret_cast<const uint64_t*>(memory), bytes / 8);
    return static_cast<double>(rows);
  };
}

void MeasureRows(const Flags& flags, WeightType type, RowMetric metric, bench::RatioTable* table) {
  bench::RatioRow row;
  row.name = std::string("rows, ") + NameOf(type) + ", " + NameOf(metric);
  if (!absl::StrContains(row.name, flags.only)) return;
  Random random(3);
  const uint64_t stride = BytesPerWeight(type) * flags.dim;
  const uint64_t bytes = stride * flags.rows;
  auto memory = HugeBuffer::Allocate(bytes).value();
  for (uint64_t i = 0; i < uint64_t{flags.rows} * flags.dim; ++i) {
    const float value = AnyValue(&random);
    if (type == WeightType::kFp32) Fp32Codec::Store(memory.data() + 4 * i, 0, value);
    if (type == WeightType::kFp16) Fp16Codec::Store(memory.data() + 2 * i, 0, value);
    if (type == WeightType::kBf16) Bf16Codec::Store(memory.data() + 2 * i, 0, value);
  }
  const std::vector<float> vector = AnyVector(flags.dim, &random);
  const auto ours = [&] {
    RowRanking ranking({metric, flags.k, vector}, type, flags.dim, /*hashed=*/false);
    const uint32_t step = ranking.rows_per_step();
    for (uint32_t first = 0; first < flags.rows; first += step) {
      const StoredRun run = {memory.data() + stride * first, stride,
                             std::min(step, flags.rows - first)};
      ranking.Offer(run, [first](uint32_t row, uint64_t* position) {
        *position = first + row;
        return true;
      });
    }
    HOTBED_CHECK(ranking.Take()[0].size() == std::min(flags.k, flags.rows));
    return static_cast<double>(flags.rows);
  };
  row.roof = "read of the bytes";
  row.unit = "rows";
  row.bar = kBar;
  table->Measure(row, ours, Reads(memory.data(), bytes, flags.rows));
}

void MeasureCall(const Flags& flags, bench::RatioTable* table) {
  bench::RatioRow row;
  row.name = "call, fp32, dot";
  if (!absl::StrContains(row.name, flags.only)) return;
  TableSpec spec;
  spec.id = 1;
  spec.name = "searched";
  spec.rows = flags.rows;
  spec.dim = flags.dim;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
  bench::BenchHost host("", 4ull << 30);
  host.Serve({spec}, 1);
  host.Fill(spec, 1, 0.25f);
  Random random(3);
  const std::vector<float> vector = AnyVector(flags.dim, &random);
  v1::TopKRequest request;
  request.set_shard(ShardId{1, 0}.packed());
  request.set_range_limit(flags.rows);
  request.set_k(flags.k);
  request.set_vectors(vector.data(), vector.size() * sizeof(float));
  request.set_last_id(~uint64_t{0});
  request.set_timeout_ms(60'000);
  const auto ours = [&] {
    const auto reply = AnswerTopK(*host.get(), request, [] { return absl::OkStatus(); });
    HOTBED_CHECK(reply.ok() && reply->counts(0) == std::min(flags.k, flags.rows));
    return static_cast<double>(flags.rows);
  };
  const uint64_t bytes = uint64_t{flags.rows} * flags.dim * sizeof(float);
  const auto memory = HugeBuffer::Allocate(bytes).value();
  for (uint64_t i = 0; i < bytes; i += 8) memory.data()[i] = static_cast<uint8_t>(i);
  row.roof = "read of the bytes";
  row.unit = "rows";
  row.bar = kBar;
  table->Measure(row, ours, Reads(memory.data(), bytes, flags.rows));
}

// Searches of served copies, whose rows lie in the order in which they came. There are as many
// copies, and as many other bytes to be read, as do not fit into a cache, and each turn has the
// next one.
void MeasureServed(const Flags& flags, RowFormatKind kind, const char* name,
                   bench::RatioTable* table) {
  bench::RatioRow row;
  row.name = std::string("served, ") + name + ", dot";
  if (!absl::StrContains(row.name, flags.only)) return;
  Random random(3);
  ServedMemory budget(64ull << 30);
  const RowCoder coder(kind, flags.dim);
  const uint64_t bytes = uint64_t{flags.rows} * coder.row_bytes();
  const uint64_t count = (kUncachedBytes + bytes - 1) / bytes;
  std::deque<ServedRows> copies;
  std::deque<HugeBuffer> memory;
  for (uint64_t c = 0; c < count; ++c) {
    copies.emplace_back(coder, &budget);
    for (uint32_t id = 0; id < flags.rows; ++id) {
      bool finite = false;
      HOTBED_CHECK(c > 0 ? copies[c].PutRow(id, copies[0].Get(id)).ok()
                         : copies[c].Put(id, AnyVector(flags.dim, &random).data(), &finite).ok());
    }
    memory.push_back(HugeBuffer::Allocate(bytes).value());
    for (uint64_t i = 0; i < bytes; i += 8) memory[c].data()[i] = static_cast<uint8_t>(i);
  }
  const std::vector<float> vector = AnyVector(flags.dim, &random);
  uint64_t searches = 0, reads = 0;
  const auto ours = [&] {
    const RowsView view(copies[searches++ % count]);
    RowSearch search(view, {.k = flags.k, .vectors = vector});
    HOTBED_CHECK(search.Run([] { return absl::OkStatus(); }).ok());
    HOTBED_CHECK(search.Take()[0].size() == std::min(flags.k, flags.rows));
    return static_cast<double>(flags.rows);
  };
  const auto roof = [&] { return Reads(memory[reads++ % count].data(), bytes, flags.rows)(); };
  row.roof = "read of the bytes";
  row.unit = "rows";
  row.bar = kBar;
  table->Measure(row, ours, roof);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Top-k against the memory");
  app.add_option("--rows", flags.rows)->check(CLI::Range(1, 100'000'000));
  app.add_option("--dim", flags.dim)->check(CLI::Range(1, 4096));
  app.add_option("--k", flags.k)->check(CLI::Range(1, 16'384));
  app.add_option("--seconds", flags.seconds);
  app.add_option("--rounds", flags.rounds)->check(CLI::Range(1, 100));
  app.add_option("--only", flags.only);
  app.add_option("-o,--output", flags.output);
  CLI11_PARSE(app, argc, argv);
  TuneDataPlaneProcess();
  bench::RatioTable table(flags.rounds, flags.seconds);
  for (const WeightType type : {WeightType::kFp32, WeightType::kFp16, WeightType::kBf16}) {
    MeasureRows(flags, type, RowMetric::kDot, &table);
  }
  MeasureRows(flags, WeightType::kFp32, RowMetric::kCosine, &table);
  MeasureRows(flags, WeightType::kFp32, RowMetric::kL2, &table);
  MeasureCall(flags, &table);
  MeasureServed(flags, RowFormatKind::kFp32, "fp32", &table);
  MeasureServed(flags, RowFormatKind::kFp16, "fp16", &table);
  MeasureServed(flags, RowFormatKind::kTbeInt8, "int8", &table);
  MeasureServed(flags, RowFormatKind::kTbeInt4, "int4", &table);
  table.Print(flags.output);
  return parity == 1 ? 2 : 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
