// The saving of one message for many tables inside a server: 100 tables x 20 ids pulled by one
// message, compared with 100 messages of one table each. Includes all of a server's work except the
// wire: parsing the bytes in place, gathering rows by the shard host into the answer, encoding its
// header.
//
//   message_bench [-o json] [--rules]
//
// The measure is sets of 2,000 rows per second. The bar of 2 means that one message takes at most
// half the time of a hundred. Medians of five interleaved rounds. With --rules each table is
// decided about first, as for callers whose rules name tables.
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/bench_host.h"
#include "bench/ratio_table.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/process_tuning.h"
#include "common/random.h"
#include "proto/data.pb.h"
#include "server/streams/data_plane.h"
#include "server/streams/pull_stream.h"
#include "server/streams/stream_tables.h"

namespace hotbed {
namespace {

constexpr uint32_t kTables = 100;
constexpr uint32_t kIdsPerTable = 20;
constexpr uint64_t kRows = 10'000;  // a table: 100 tables of 64 fp32 are 256 MB, beyond the caches
constexpr uint32_t kDim = 64;
constexpr int kRequests = 64;  // distinct, in turns

std::vector<TableSpec> Tables() {
  std::vector<TableSpec> tables;
  for (TableId id = 1; id <= kTables; ++id) {
    TableSpec& table = tables.emplace_back();
    table.id = id;
    table.name = absl::StrCat("t", id);
    table.rows = kRows;
    table.dim = kDim;
    table.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
    table.durability = Durability::kCheckpoint;
  }
  return tables;
}

grpc::ByteBuffer Encode(const std::vector<TableId>& tables, Random* random) {
  v1::PullRequest request;
  for (const TableId table : tables) {
    v1::PullGroup* const group = request.mutable_header()->add_groups();
    group->set_table(table);
    group->add_shards(0);
    group->add_epochs(1);
    group->add_id_counts(kIdsPerTable);
    for (uint32_t i = 0; i < kIdsPerTable; ++i) {
      const uint64_t id = random->Uniform(kRows);
      request.mutable_ids()->append(reinterpret_cast<const char*>(&id), sizeof(id));
    }
  }
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

class EveryTable final : public TableAccess {
 public:
  absl::Status Check(absl::string_view) const override { return absl::OkStatus(); }
  absl::Status Refuse(absl::string_view what) const override {
    return absl::PermissionDeniedError(what);
  }
};

class Answered final : public PullSink {
 public:
  void PullDone(PullMessage* message) override {
    const grpc::ByteBuffer answer = message->Encode(nullptr);
    HOTBED_CHECK(answer.Length() > message->rows() * kDim * sizeof(float)) << "rows are missing";
    const uint64_t reserved = message->reserved();
    DataPlane* const plane = plane_;
    message->Recycle();
    plane->pull_budget.Release(reserved);
    answered_.fetch_add(1, std::memory_order_release);
  }
  bool abandoned() const override { return false; }
  ByteBudget* budget() override { return &plane_->pull_budget; }
  ByteBudget::Account* account() override { return nullptr; }

  // All rows are resident, so that answers are immediate unless upkeep holds the shard.
  void Pull(DataPlane* plane, const grpc::ByteBuffer& request, StreamTables* tables) {
    plane_ = plane;
    PullMessage* const message = PullMessage::Take();
    const uint64_t before = answered_.load(std::memory_order_relaxed);
    HOTBED_CHECK(message->Parse(request, plane, plane->clock->NowNs(), 0, tables).ok());
    message->Run(this);
    while (answered_.load(std::memory_order_acquire) == before) std::this_thread::yield();
  }

 private:
  DataPlane* plane_ = nullptr;
  std::atomic<uint64_t> answered_{0};
};

int Main(int argc, char** argv) {
  std::string output;
  bool rules = false;
  CLI::App app;
  app.add_option("-o", output);
  app.add_flag("--rules", rules);
  CLI11_PARSE(app, argc, argv);
  TuneDataPlaneProcess();
  bench::BenchHost host;
  const std::vector<TableSpec> tables = Tables();
  host.Serve(tables, 1);
  for (const TableSpec& table : tables) host.Fill(table, 1, 1.0f);
  DataPlane plane({.slow_request_ms = 1000}, host.get(), Clock::Real());
  Random random(20261121);
  std::vector<TableId> all;
  for (TableId id = 1; id <= kTables; ++id) all.push_back(id);
  std::vector<grpc::ByteBuffer> joined;
  std::vector<grpc::ByteBuffer> single;
  for (int i = 0; i < kRequests; ++i) {
    joined.push_back(Encode(all, &random));
    for (const TableId table : all) single.push_back(Encode({table}, &random));
  }
  Answered sink;
  StreamTables tables_of = rules ? StreamTables(std::make_unique<EveryTable>()) : StreamTables();
  size_t next_joined = 0;
  size_t next_single = 0;
  bench::RatioTable table(5, 0.5);
  table.Measure(
      {.name = "100 tables x 20 ids x 64 fp32, one message",
       .roof = "100 messages of one table",
       .unit = "sets of 2,000 rows",
       .bar = 2.0},
      [&] {
        sink.Pull(&plane, joined[next_joined++ % joined.size()], tables_of.limited());
        return 1.0;
      },
      [&] {
        for (uint32_t i = 0; i < kTables; ++i) {
          sink.Pull(&plane, single[next_single++ % single.size()], tables_of.limited());
        }
        return 1.0;
      });
  table.Print(output);
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
