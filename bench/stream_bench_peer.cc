#include "bench/stream_bench_peer.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/synchronization/notification.h"
#include "bench/roofs/peer_process.h"
#include "common/status_macros.h"
#include "server/data_server.h"
#include "server/host/shard_host.h"

namespace hotbed::bench {
namespace {

constexpr ServerId kServer = 1;
constexpr SessionId kLoader = 1;

struct LoadWork final : PushWork {
  void Done() override { done.Notify(); }
  absl::Notification done;
};

// Pushes to one shard: rows exist, and are resident, once they were pushed.
bool LoadRows(ShardHost* host, ShardId shard, uint64_t first, uint64_t count, uint64_t seq) {
  static const std::vector<uint8_t> gradient(kDim * 4, 0);
  std::vector<uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  const std::vector<const uint8_t*> gradients(count, gradient.data());
  LoadWork work;
  work.session = kLoader;
  work.incarnation = 1;
  PushSegment& segment = work.segments.emplace_back();
  segment.shard = host->Find(shard);
  segment.shard_id = shard;
  segment.epoch = kEpoch;
  segment.ids = ids.data();
  segment.count = static_cast<uint32_t>(count);
  segment.gradients = gradients.data();
  segment.seq = (seq + 1) << 20;
  segment.prev_seq = seq << 20;
  segment.open = seq == 0;
  host->Push(&work);
  work.done.WaitForNotification();
  if (work.segments[0].result.code == SegmentCode::kOk) return true;
  std::fprintf(stderr, "loading rows: %s\n", work.segments[0].result.detail.c_str());
  return false;
}

absl::Status Assign(ShardHost* host, Durability durability) {
  HOTBED_RETURN_IF_ERROR(host->SetIdentity({kServer, "bench"}));
  host->SetIncarnation(1);
  TableSpec table;
  table.id = kTable;
  table.name = "bench";
  table.rows = kRows;
  table.dim = kDim;
  table.durability = durability;
  std::vector<ShardRecord> records(kShards);
  for (uint32_t s = 0; s < kShards; ++s) {
    records[s].shard = {kTable, s};
    records[s].range = {s * kRowsPerShard, (s + 1) * kRowsPerShard, 0, kDim};
    records[s].epoch = kEpoch;
    records[s].revision = 1;
    records[s].primary = {kServer, 1};
    records[s].members = {records[s].primary};
  }
  HOTBED_RETURN_IF_ERROR(host->ApplyAssignment({table}, records, {}));
  while (host->ShardsToActivate().size() < kShards) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (ShardRecord& record : records) {
    record.active = true;
    record.base = record.members;
    record.revision = 2;
  }
  return host->ApplyAssignment({}, records, {});
}

}  // namespace

int ServeData(const std::vector<std::string>& args) {
  DataServerOptions options;
  if (args.size() < 3 || !absl::SimpleAtoi(args[2], &options.threads)) return 1;
  ShardHostOptions host_options;
  host_options.data_dir = args[0];
  host_options.host_bytes = 2ull << 30;
  auto host = ShardHost::Open(host_options, Clock::Real());
  absl::Status status = host.status();
  if (status.ok()) {
    status = Assign(host->get(), args[1] == "log" ? Durability::kLog : Durability::kCheckpoint);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "stream_bench: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  constexpr uint64_t kBatch = 5000;
  for (uint32_t s = 0; s < kShards; ++s) {
    for (uint64_t at = 0; at < kRowsPerShard; at += kBatch) {
      if (!LoadRows(host->get(), {kTable, s}, s * kRowsPerShard + at, kBatch, at / kBatch)) {
        return 1;
      }
    }
  }
  auto server = DataServer::Start(options, host->get(), Clock::Real());
  if (!server.ok()) return 1;
  int port = 0;
  const std::string& address = (*server)->address();
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) return 1;
  roofs::TellPort(port);
  for (;;) pause();
}

}  // namespace hotbed::bench
