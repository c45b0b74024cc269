// The cost of a message by the number of shards that it touches: 512 ids of 64 floats, client and
// server in one process and one thread, without a network.
//
//   shards_bench [--ids N] [--rows N] [--durability checkpoint|log] [--turns N] [-o json]
//
// Each figure is the processor time per call in the quickest of many short runs, which other work
// on the machine disturbs least; "ratio" is that over 8 shards, divided by it.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/roofs/machine.h"
#include "client/client_impl.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/process_tuning.h"
#include "common/random.h"
#include "local/local_control_plane.h"
#include "local/local_engine.h"
#include "local/local_transport.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr uint32_t kDim = 64;
constexpr int kBatches = 32;    // of ids, in turns
constexpr int kRunCalls = 128;  // calls of one run
constexpr uint64_t kLoadRows = 8192;
constexpr uint32_t kShards[] = {8, 64, 512, 1024};

double ProcessorUs() {
  timespec now;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

struct Settings {
  uint64_t ids = 512;
  uint64_t rows = 1'000'000;
  std::string durability = "checkpoint";
  int turns = 40;
  std::vector<std::string> kinds = {"pull", "push"};
  std::vector<uint32_t> shards{std::begin(kShards), std::end(kShards)};
};

class Case {
 public:
  Case(LocalEngine* engine, Client* client, const Settings& settings, uint32_t shards)
      : client_(client), shards_(shards) {
    TableSpec spec;
    spec.name = absl::StrCat("t", shards);
    spec.dim = kDim;
    spec.rows = settings.rows;
    spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
    spec.initializer = {InitializerKind::kUniform, -0.05f, 0.05f};
    spec.durability = settings.durability == "log" ? Durability::kLog : Durability::kCheckpoint;
    v1::CreateTableRequest request;
    *request.mutable_spec() = ToProto(spec);
    request.set_shards(shards);
    const auto made = engine->Call<v1::CreateTableReply>(std::move(request), absl::Seconds(60));
    HOTBED_CHECK(made.ok()) << made.status();
    HOTBED_CHECK(engine->TakeUp().ok());
    const auto table = client->OpenTable(spec.name);
    HOTBED_CHECK(table.ok()) << table.status();
    table_ = *table;
    gradients_.assign(std::max(settings.ids, kLoadRows) * kDim, 0.001f);
    rows_.resize(settings.ids * kDim);
    Load(settings.rows);
    Random random(17);
    for (int b = 0; b < kBatches; ++b) {
      std::unordered_set<uint64_t> seen;
      std::vector<uint64_t>& ids = batches_.emplace_back();
      while (ids.size() < settings.ids) {
        const uint64_t id = random.Uniform(settings.rows);
        if (seen.insert(id).second) ids.push_back(id);
      }
    }
  }

  uint32_t shards() const { return shards_; }

  // Microseconds of processor time per call.
  double Run(const std::string& kind) {
    const double before = ProcessorUs();
    for (int call = 0; call < kRunCalls; ++call) {
      const std::vector<uint64_t>& ids = batches_[next_++ % kBatches];
      if (kind == "pull") {
        const PullFeature feature{table_, ids, rows_.data()};
        HOTBED_CHECK(client_->Pull({&feature, 1}).Wait().ok());
      } else {
        Push(ids);
      }
    }
    return (ProcessorUs() - before) / kRunCalls;
  }

 private:
  void Push(absl::Span<const uint64_t> ids) {
    const PushFeature feature{table_, ids, gradients_.data()};
    HOTBED_CHECK(client_->Push(++step_, {&feature, 1}).Wait().status.ok());
  }
  void Load(uint64_t rows) {
    for (uint64_t first = 0; first < rows; first += kLoadRows) {
      std::vector<uint64_t> ids;
      for (uint64_t id = first; id < std::min(rows, first + kLoadRows); ++id) ids.push_back(id);
      Push(ids);
    }
  }

  Client* const client_;
  const uint32_t shards_;
  const Table* table_ = nullptr;
  std::vector<std::vector<uint64_t>> batches_;
  std::vector<float> gradients_;
  std::vector<float> rows_;
  size_t next_ = 0;
  uint64_t step_ = 0;
};

struct Figure {
  std::string kind;
  uint32_t shards = 0;
  double best_us = 1e300;
};

int Main(int argc, char** argv) {
  Settings settings;
  std::string output;
  CLI::App app;
  app.add_option("--ids", settings.ids);
  app.add_option("--rows", settings.rows);
  app.add_option("--durability", settings.durability);
  app.add_option("--turns", settings.turns);
  app.add_option("--kinds", settings.kinds)->delimiter(',');
  app.add_option("--shards", settings.shards)->delimiter(',');
  app.add_option("-o", output);
  CLI11_PARSE(app, argc, argv);
  const bench::MachineNote note;
  TuneDataPlaneProcess();
  auto engine = LocalEngine::Open("", {.host_bytes = 3ull << 30}, /*seed=*/17);
  HOTBED_CHECK(engine.ok()) << engine.status();
  ClientImpl client(ClientOptions(), NewLocalControlPlane(*engine),
                    NewLocalTransport(*engine, ClientOptions().threads), Clock::Real(),
                    /*seed=*/17);
  HOTBED_CHECK(client.Start().ok());
  std::vector<std::unique_ptr<Case>> cases;
  for (const uint32_t shards : settings.shards) {
    cases.push_back(std::make_unique<Case>(engine->get(), &client, settings, shards));
  }
  std::vector<Figure> figures;
  for (const std::string& kind : settings.kinds) {
    for (const auto& c : cases) figures.push_back({kind, c->shards()});
  }
  for (int turn = 0; turn < settings.turns; ++turn) {
    for (size_t f = 0; f < figures.size(); ++f) {
      figures[f].best_us =
          std::min(figures[f].best_us, cases[f % cases.size()]->Run(figures[f].kind));
    }
  }
  nlohmann::json list = nlohmann::json::array();
  for (size_t f = 0; f < figures.size(); ++f) {
    const double base_us = figures[f / cases.size() * cases.size()].best_us;
    const Figure& figure = figures[f];
    if (output != "json") {
      std::printf("%s of %llu ids over %4u shards: %7.1f us, ratio %.2f\n", figure.kind.c_str(),
                  static_cast<unsigned long long>(settings.ids), figure.shards, figure.best_us,
                  base_us / figure.best_us);
    }
    list.push_back({{"kind", figure.kind},
                    {"shards", figure.shards},
                    {"us", figure.best_us},
                    {"ratio", base_us / figure.best_us}});
  }
  if (output == "json") std::printf("%s\n", list.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
