#include "server/export/change_reads.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "row_math/types.h"

namespace hotbed {
namespace {

constexpr int64_t kSweepNs = kSecondNs;
// After a commit has woken the thread, so that it is not woken by every single one.
constexpr int64_t kGatherNs = kMillisecondNs;

std::string BytesOf(const std::vector<uint64_t>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint64_t));
}

absl::Status Check(const v1::ReadChangesRequest& request) {
  if (request.shards_size() < 1 || request.shards_size() > kFollowedShardsMax) {
    return absl::InvalidArgumentError(absl::StrCat("a call follows ", request.shards_size(),
                                                   " shards, allowed: 1..", kFollowedShardsMax));
  }
  std::set<uint64_t> seen;
  for (const v1::FollowedShard& shard : request.shards()) {
    if (seen.insert(shard.shard()).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a call names ", ShardId::FromPacked(shard.shard()).ToString(), " twice, allowed: once"));
  }
  return absl::OkStatus();
}

}  // namespace

FollowCounters& FollowCounters::Get() {
  static auto* const counters = new FollowCounters;
  return *counters;
}

ReadPosition PositionOf(const v1::ReadPlace& place) {
  return {{place.through().epoch(), place.through().lsn()},
          {place.seen().epoch(), place.seen().lsn()}};
}

v1::ReadPlace ToWire(const ReadPosition& position) {
  v1::ReadPlace place;
  place.mutable_through()->set_epoch(position.through.epoch);
  place.mutable_through()->set_lsn(position.through.lsn);
  place.mutable_seen()->set_epoch(position.seen.epoch);
  place.mutable_seen()->set_lsn(position.seen.lsn);
  return place;
}

std::shared_ptr<Shard> FindFollowed(const ShardHost& host, ShardId id, uint64_t range_first,
                                    uint64_t range_limit) {
  std::shared_ptr<Shard> shard = host.Find(id);
  const bool here = shard != nullptr && shard->primary() && shard->active() &&
                    shard->range().first == range_first && shard->range().limit == range_limit;
  return here ? shard : nullptr;
}

struct ChangeReads::Part {
  std::shared_ptr<Shard> shard;
  ChangeFeed::Changes changes;
  std::vector<uint8_t> values;
  std::vector<uint8_t> exist;  // a byte per id
  bool with_rows = false;
  RowReads reads;
  absl::StatusOr<ChangePosition> seen = absl::UnavailableError("not read");
  absl::Notification read;
  std::vector<uint64_t> deleted;

  // A row that has changed and does not exist was deleted.
  void TakeDeletedOut() {
    std::vector<uint64_t>& ids = changes.ids;
    if (ids.empty()) return;
    const size_t row_bytes = values.size() / ids.size();
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if ((exist[i] & 1) == 0) {
        deleted.push_back(ids[i]);
        continue;
      }
      if (kept != i) {
        ids[kept] = ids[i];
        std::memcpy(&values[kept * row_bytes], &values[i * row_bytes], row_bytes);
      }
      ++kept;
    }
    ids.resize(kept);
    values.resize(kept * row_bytes);
  }
};

ChangeReads::ChangeReads(const ShardHost* host, std::shared_ptr<ChangeMemory> memory,
                         const Clock* clock)
    : host_(host), memory_(std::move(memory)), clock_(clock), thread_([this] { Work(); }) {
  FollowCounters::Get();  // exported from now on, not from the first answer
}

void ChangeReads::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  memory_->Raise();
  if (thread_.joinable()) thread_.join();
}

absl::Status ChangeReads::Admit(const v1::ReadChangesRequest& request,
                                const std::string& connection, ToolCalls::Done* done) {
  HOTBED_RETURN_IF_ERROR(Check(request));
  absl::MutexLock lock(&mu_);
  if (stops_) return absl::UnavailableError("this server is stopping");
  HOTBED_RETURN_IF_ERROR(share_.Take(connection));
  const int64_t wait_ms = std::min(request.wait_ms(), kChangeWaitMsMax);
  arrived_.push_back(
      {request, connection, std::move(*done), clock_->NowNs() + wait_ms * kMillisecondNs});
  return absl::OkStatus();
}

void ChangeReads::Read(const v1::ReadChangesRequest& request, const std::string& connection,
                       ToolCalls::Done done) {
  const absl::Status admitted = Admit(request, connection, &done);
  if (!admitted.ok()) return done(admitted, nullptr);
  memory_->Raise();
}

void ChangeReads::Watch(std::shared_ptr<Shard> shard) {
  absl::MutexLock lock(&mu_);
  fed_[shard->id()] = shard;
}

void ChangeReads::Sweep(int64_t now_ns) {
  if (now_ns - swept_ns_ < kSweepNs) return;
  swept_ns_ = now_ns;
  absl::MutexLock lock(&mu_);
  for (auto it = fed_.begin(); it != fed_.end();) {
    const std::shared_ptr<Shard> shard = it->second.lock();
    const bool closed = shard == nullptr || shard->feed()->Sweep(now_ns);
    it = closed ? fed_.erase(it) : std::next(it);
  }
}

void ChangeReads::Work() {
  std::vector<Waiting> waiting;
  for (;;) {
    memory_->Arm();  // changes from here on end the wait below
    bool stops = false;
    {
      absl::MutexLock lock(&mu_);
      stops = stops_;
      std::move(arrived_.begin(), arrived_.end(), std::back_inserter(waiting));
      arrived_.clear();
    }
    const int64_t now_ns = clock_->NowNs();
    int64_t until_ns = now_ns + kSweepNs;
    std::vector<std::string> answered;  // their connections
    std::erase_if(waiting, [&](Waiting& call) {
      if (!Answer(&call, now_ns, stops)) return false;
      answered.push_back(std::move(call.connection));
      return true;
    });
    for (const Waiting& call : waiting) until_ns = std::min(until_ns, call.until_ns);
    {
      absl::MutexLock lock(&mu_);
      for (const std::string& connection : answered) share_.Give(connection);
    }
    if (stops) return;
    Sweep(now_ns);
    memory_->Await(absl::Nanoseconds(std::max<int64_t>(until_ns - clock_->NowNs(), 0)));
    clock_->SleepNs(kGatherNs);
  }
}

bool ChangeReads::Answer(Waiting* call, int64_t now_ns, bool stops) {
  if (stops) {
    call->done(absl::UnavailableError("this server is stopping"), nullptr);
    return true;
  }
  v1::ReadChangesReply reply;
  std::vector<std::unique_ptr<Part>> parts = Gather(call->request, now_ns, &reply);
  std::shared_ptr<const void> held;
  if (!parts.empty()) {
    const uint64_t bytes = kChangeAnswerCopies * kChangeBytesMax;
    if (!memory_->TakeForAnswer(bytes)) return false;  // until another answer has left
    held = std::shared_ptr<const void>(
        nullptr, [memory = memory_, bytes](const void*) { memory->GiveFromAnswer(bytes); });
    ReadRows(&parts, &reply);
  }
  if (reply.shards().empty() && now_ns < call->until_ns) return false;
  if (!reply.more() && MayLackPushes(call->request)) reply.set_more(true);
  call->done(reply.SerializeAsString(), std::move(held));
  return true;
}

// A server that was paused or cut off may be deposed: its silence says nothing then.
bool ChangeReads::MayLackPushes(const v1::ReadChangesRequest& request) const {
  return std::any_of(
      request.shards().begin(), request.shards().end(), [this](const v1::FollowedShard& asked) {
        const std::shared_ptr<Shard> shard = FindFollowed(
            *host_, ShardId::FromPacked(asked.shard()), asked.range_first(), asked.range_limit());
        return shard == nullptr || shard->MayLackPushes();
      });
}

std::vector<std::unique_ptr<ChangeReads::Part>> ChangeReads::Gather(
    const v1::ReadChangesRequest& request, int64_t now_ns, v1::ReadChangesReply* reply) const {
  std::vector<std::unique_ptr<Part>> parts;
  uint64_t left = std::clamp<uint64_t>(request.bytes_max(), 1, kChangeBytesMax);
  for (const v1::FollowedShard& asked : request.shards()) {
    const ShardId id = ShardId::FromPacked(asked.shard());
    std::shared_ptr<Shard> shard =
        FindFollowed(*host_, id, asked.range_first(), asked.range_limit());
    if (shard == nullptr) {
      v1::ShardChanges& said = *reply->add_shards();
      said.set_shard(asked.shard());
      said.set_elsewhere(true);
      continue;
    }
    // Also where ids alone are wanted: the rows are read, since they tell which are deleted.
    const uint64_t row_bytes = sizeof(uint64_t) + RowWireBytes(RowType::kFp32, shard->dim());
    if (left < row_bytes && !parts.empty()) {  // at the next call
      reply->set_more(true);
      continue;
    }
    const ReadPosition above = PositionOf(asked.above());
    auto part = std::make_unique<Part>();
    part->changes =
        shard->feed()->Read(above, asked.skip(), std::max<uint64_t>(left / row_bytes, 1), now_ns);
    ChangeFeed::Changes& changes = part->changes;
    const ReadPosition behind = {changes.through, changes.through};
    if (changes.skip != 0 || (!changes.ids.empty() &&
                              !shard->feed()->Read(behind, 0, /*ids_max=*/1, now_ns).ids.empty())) {
      reply->set_more(true);
    }
    if (!changes.known) {
      v1::ShardChanges& said = *reply->add_shards();
      said.set_shard(asked.shard());
      said.set_behind(true);
      continue;
    }
    if (changes.through == above.through && changes.skip == asked.skip()) continue;
    const WantedPlaces wanted = WantedPlaces::Of(request, shard->table().hashed);
    std::erase_if(changes.ids, [&wanted](uint64_t id) { return !wanted.IncludeId(id); });
    left -= std::min(left, changes.ids.size() * row_bytes);
    part->with_rows = request.with_rows();
    if (!changes.ids.empty()) {
      part->values.resize(changes.ids.size() * (row_bytes - sizeof(uint64_t)));
      part->exist.resize(changes.ids.size());
      part->reads.flags = part->exist.data();
      part->reads.ids = changes.ids.data();
      part->reads.count = static_cast<uint32_t>(changes.ids.size());
      part->reads.rows = part->values.data();
    }
    part->shard = std::move(shard);
    parts.push_back(std::move(part));
  }
  return parts;
}

// All shards at the same time.
void ChangeReads::ReadRows(std::vector<std::unique_ptr<Part>>* parts, v1::ReadChangesReply* reply) {
  for (const auto& part : *parts) {
    if (part->reads.count == 0) {  // no rows have changed
      part->seen = part->shard->AppliedPosition();
      part->read.Notify();
      continue;
    }
    part->shard->ReadRows(&part->reads, [&part](absl::StatusOr<ChangePosition> seen) {
      part->seen = std::move(seen);
      part->read.Notify();
    });
  }
  for (const auto& part : *parts) {
    part->read.WaitForNotification();
    v1::ShardChanges& said = *reply->add_shards();
    said.set_shard(part->shard->id().packed());
    if (!part->seen.ok()) {
      said.set_elsewhere(true);
      continue;
    }
    *said.mutable_at() = ToWire({part->changes.through, *part->seen});
    said.set_skip(part->changes.skip);
    part->TakeDeletedOut();
    said.set_ids(BytesOf(part->changes.ids));
    said.set_deleted(BytesOf(part->deleted));
    if (part->with_rows) said.set_rows(part->values.data(), part->values.size());
    FollowCounters::Get().changes.Add(said.ids().size() + said.rows().size() +
                                      said.deleted().size());
  }
}

}  // namespace hotbed
