// The saving of one message for many tables inside a server: 100 tables x 20 ids pulled by one
// message, compared with 100 messages of one table each. Includes all of a server's work except the
// wire: parsing the bytes in place, gathering rows by the shard host into the answer, encoding its
// header.
//
//   message_bench [-o json]
//
// The measure is sets of 2,000 rows per second. The bar of 2 means that one message takes at most
// half the time of a hundred. Medians of five interleaved rounds.
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "bench/ratio_table.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/process_tuning.h"
#include "common/random.h"
#include "proto/data.pb.h"
#include "server/host/shard_host.h"
#include "server/streams/data_plane.h"
#include "server/streams/pull_stream.h"

namespace hotbed {
namespace {

constexpr uint32_t kTables = 100;
constexpr uint32_t kIdsPerTable = 20;
constexpr uint64_t kRows = 10'000;  // a table: 100 tables of 64 fp32 are 256 MB, beyond the caches
constexpr uint32_t kDim = 64;
constexpr int kRequests = 64;  // distinct, in turns

class Rows {
 public:
  Rows() {
    std::string path = (std::filesystem::temp_directory_path() / "message-bench-XXXXXX").string();
    HOTBED_CHECK(mkdtemp(path.data()) != nullptr) << path;
    dir_ = path;
    ShardHostOptions options;
    options.data_dir = dir_;
    options.host_bytes = 1ull << 30;
    auto host = ShardHost::Open(options, Clock::Real());
    HOTBED_CHECK(host.ok()) << host.status();
    host_ = *std::move(host);
    HOTBED_CHECK(host_->SetIdentity({1, "bench"}).ok());
    host_->SetIncarnation(1);
    AssignTables();
    plane_ = std::make_unique<DataPlane>(DataPlaneLimits(), host_.get(), Clock::Real());
  }
  ~Rows() {
    plane_.reset();
    host_.reset();
    std::filesystem::remove_all(dir_);
  }

  ShardHost* host() { return host_.get(); }
  DataPlane* plane() { return plane_.get(); }

 private:
  void AssignTables() {
    std::vector<TableSpec> tables;
    std::vector<ShardRecord> records;
    for (TableId id = 1; id <= kTables; ++id) {
      TableSpec& table = tables.emplace_back();
      table.id = id;
      table.name = absl::StrCat("t", id);
      table.rows = kRows;
      table.dim = kDim;
      table.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
      table.durability = Durability::kCheckpoint;
      ShardRecord& record = records.emplace_back();
      record.shard = {id, 0};
      record.range = {0, kRows, 0, kDim};
      record.epoch = record.revision = 1;
      record.primary = {1, 1};
      record.members = {record.primary};
    }
    HOTBED_CHECK(host_->ApplyAssignment(tables, records, {}).ok());
    while (host_->ShardsToActivate().size() < kTables) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (ShardRecord& record : records) {
      record.active = true;
      record.revision = 2;
    }
    HOTBED_CHECK(host_->ApplyAssignment({}, records, {}).ok());
  }

  std::string dir_;
  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<DataPlane> plane_;
};

// Every row gets a value, so that pulls find it resident.
struct Filling final : PushWork {
  void Done() override { done.Notify(); }
  absl::Notification done;
};

void Fill(ShardHost* host, TableId table) {
  const std::vector<float> gradient(kDim, 1.0f);
  std::vector<uint64_t> ids(kRows);
  for (uint64_t i = 0; i < kRows; ++i) ids[i] = i;
  const std::vector<const uint8_t*> rows(kRows, reinterpret_cast<const uint8_t*>(gradient.data()));
  Filling work;
  work.session = 1;
  work.incarnation = 1;
  PushSegment& segment = work.segments.emplace_back();
  segment.shard_id = {table, 0};
  segment.shard = host->Find(segment.shard_id);
  segment.epoch = 1;
  segment.ids = ids.data();
  segment.count = kRows;
  segment.gradients = rows.data();
  segment.seq = 1;
  segment.open = true;
  host->Push(&work);
  work.done.WaitForNotification();
  HOTBED_CHECK(segment.result.code == SegmentCode::kOk) << segment.result.detail;
}

grpc::ByteBuffer Encode(const std::vector<TableId>& tables, Random* random) {
  v1::PullRequest request;
  for (const TableId table : tables) {
    v1::PullSegment* segment = request.mutable_header()->add_segments();
    segment->set_shard(ShardId{table, 0}.packed());
    segment->set_epoch(1);
    segment->set_id_count(kIdsPerTable);
    for (uint32_t i = 0; i < kIdsPerTable; ++i) {
      const uint64_t id = random->Uniform(kRows);
      request.mutable_ids()->append(reinterpret_cast<const char*>(&id), sizeof(id));
    }
  }
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

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

  // All rows are resident, so that answers are immediate unless upkeep holds the shard.
  void Pull(DataPlane* plane, const grpc::ByteBuffer& request) {
    plane_ = plane;
    PullMessage* const message = PullMessage::Take();
    const uint64_t before = answered_.load(std::memory_order_relaxed);
    HOTBED_CHECK(message->Parse(request, plane, plane->clock->NowNs(), 0).ok());
    message->Run(this);
    while (answered_.load(std::memory_order_acquire) == before) std::this_thread::yield();
  }

 private:
  DataPlane* plane_ = nullptr;
  std::atomic<uint64_t> answered_{0};
};

int Main(int argc, char** argv) {
  TuneDataPlaneProcess();
  Rows rows;
  for (TableId id = 1; id <= kTables; ++id) Fill(rows.host(), id);
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
  size_t next_joined = 0;
  size_t next_single = 0;
  bench::RatioTable table(5, 0.5);
  table.Measure(
      {.name = "100 tables x 20 ids x 64 fp32, one message",
       .roof = "100 messages of one table",
       .unit = "sets of 2,000 rows",
       .bar = 2.0},
      [&] {
        sink.Pull(rows.plane(), joined[next_joined++ % joined.size()]);
        return 1.0;
      },
      [&] {
        for (uint32_t i = 0; i < kTables; ++i) {
          sink.Pull(rows.plane(), single[next_single++ % single.size()]);
        }
        return 1.0;
      });
  if (bench::WantsJson(argc, argv)) {
    table.PrintJson();
  } else {
    table.PrintTable();
  }
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
