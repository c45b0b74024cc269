#include "bench/bench_host.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "server/protocol/core_messages.h"

namespace hotbed::bench {

void BenchPush::Wait() {
  done.WaitForNotification();
  for (const PushSegment& segment : segments) {
    HOTBED_CHECK(segment.result.code == SegmentCode::kOk) << segment.result.detail;
  }
}

BenchHost::BenchHost(std::string dir, uint64_t host_bytes) : dir_(std::move(dir)) {
  if (dir_.empty()) {
    dir_ = (std::filesystem::temp_directory_path() / "hotbed-bench-XXXXXX").string();
    HOTBED_CHECK(mkdtemp(dir_.data()) != nullptr) << dir_;
  }
  ShardHostOptions options;
  options.data_dir = dir_;
  options.host_bytes = host_bytes;
  host_ = ShardHost::Open(options, Clock::Real()).value();
  HOTBED_CHECK(host_->SetIdentity({1, "bench"}).ok());
  host_->SetIncarnation(1);
}

BenchHost::~BenchHost() {
  host_.reset();
  std::filesystem::remove_all(dir_);
}

void BenchHost::Serve(const std::vector<TableSpec>& tables, uint32_t shards) {
  std::vector<ShardRecord> records;
  for (const TableSpec& table : tables) {
    for (uint32_t s = 0; s < shards; ++s) {
      ShardRecord& record = records.emplace_back();
      record.shard = {table.id, s};
      record.range = {table.rows / shards * s, table.rows / shards * (s + 1), 0, table.dim};
      record.epoch = record.revision = 1;
      record.primary = {1, 1};
      record.members = {record.primary};
    }
  }
  HOTBED_CHECK(host_->ApplyAssignment(tables, records, {}).ok());
  while (host_->ShardsToActivate().size() < records.size()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (ShardRecord& record : records) {
    record.active = true;
    record.base = record.members;
    record.revision = 2;
  }
  HOTBED_CHECK(host_->ApplyAssignment({}, records, {}).ok());
}

void BenchHost::Fill(const TableSpec& table, uint32_t shards, float value) {
  constexpr uint64_t kBatch = 5000;
  const std::vector<float> gradient(table.dim, value);
  const uint64_t rows = table.rows / shards;
  for (uint32_t s = 0; s < shards; ++s) {
    uint64_t seq = 0;
    const std::shared_ptr<Shard> shard = host_->Find({table.id, s});
    for (uint64_t at = 0; at < rows; at += kBatch) {
      std::vector<uint64_t> ids(std::min(kBatch, rows - at));
      std::iota(ids.begin(), ids.end(), s * rows + at);
      const std::vector<const uint8_t*> gradients(
          ids.size(), reinterpret_cast<const uint8_t*>(gradient.data()));
      BenchPush push;
      PushSegment& segment = push.segments.emplace_back();
      segment.shard_id = {table.id, s};
      segment.shard = shard.get();
      segment.epoch = 1;
      segment.ids = ids.data();
      segment.count = static_cast<uint32_t>(ids.size());
      segment.gradients = gradients.data();
      segment.prev_seq = seq << kStepShift;
      segment.seq = ++seq << kStepShift;
      segment.open = at == 0;
      host_->Push(&push);
      push.Wait();
    }
  }
}

}  // namespace hotbed::bench
