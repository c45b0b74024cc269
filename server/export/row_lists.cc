#include "server/export/row_lists.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr absl::Duration kListLook = absl::Milliseconds(500);
constexpr uint32_t kChangedIdsMax = 1u << 16;  // per shard and answer

std::string BytesOfIds(const std::vector<uint64_t>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint64_t));
}

}  // namespace

// Holds up the copy while its reader has not taken what is there.
class RowLists::Sink : public RowSink {
 public:
  Sink(RowLists* lists, Listing* listing) : lists_(*lists), listing_(*listing) {}

  absl::Status BeginPass(uint64_t) override { return absl::OkStatus(); }
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t>) override {
    absl::MutexLock lock(&lists_.mu_);
    const auto goes_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lists_.mu_) {
      return lists_.stops_ || listing_.dropped || listing_.ids.size() < kListQueuedIdsMax;
    };
    lists_.mu_.Await(absl::Condition(&goes_on));
    if (lists_.stops_ || listing_.dropped) return absl::CancelledError("nobody reads the list");
    listing_.ids.insert(listing_.ids.end(), ids.begin(), ids.end());
    return absl::OkStatus();
  }

 private:
  RowLists& lists_;
  Listing& listing_;
};

RowLists::RowLists(ShardHost* host, const Clock* clock) : host_(host), clock_(clock) {
  for (int i = 0; i < kListsMax; ++i) threads_.emplace_back([this] { Work(); });
  // Lists of which both threads wait for readers are dropped by a third one.
  threads_.emplace_back([this] {
    absl::MutexLock lock(&mu_);
    while (!AwaitFor(&mu_, absl::Condition(&stops_), kListLook)) DropUnread(clock_->NowNs());
  });
}

void RowLists::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

absl::StatusOr<v1::ListRowsReply> RowLists::List(const v1::ListRowsRequest& request) {
  absl::MutexLock lock(&mu_);
  if (stops_) return absl::UnavailableError("this server is stopping");
  auto it = lists_.find(request.list());
  v1::ListRowsReply reply;
  if (it == lists_.end()) {
    if (request.end()) return reply;
    if (lists_.size() >= kListsWaitingMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat(lists_.size(), " lists of rows wait on this server, the limit"));
    }
    auto listing = std::make_shared<Listing>();
    listing->shard = ShardId::FromPacked(request.shard());
    it = lists_.emplace(request.list(), std::move(listing)).first;
  }
  Listing& listing = *it->second;
  if (listing.shard.packed() != request.shard()) {
    return absl::InvalidArgumentError(absl::StrCat("list ", request.list(), " is one of ",
                                                   listing.shard.ToString(),
                                                   "; take another number for another shard"));
  }
  listing.read_ns = clock_->NowNs();
  listing.dropped = request.end();
  const absl::Status error = listing.error;
  reply.set_ids(BytesOfIds(listing.ids));
  listing.ids.clear();
  reply.set_ended(listing.ended);
  reply.set_epoch(listing.epoch);
  reply.set_lsn(listing.lsn);
  if (listing.ended || listing.dropped) lists_.erase(it);
  if (!error.ok()) return error;
  return reply;
}

void RowLists::DropUnread(int64_t now_ns) {
  for (auto it = lists_.begin(); it != lists_.end();) {
    if (now_ns - it->second->read_ns < kUnreadNsMax) {
      ++it;
      continue;
    }
    it->second->dropped = true;
    lists_.erase(it++);
  }
}

RowLists::Listing* RowLists::FirstWaiting() const {
  for (const auto& [number, listing] : lists_) {
    if (!listing->begun) return listing.get();
  }
  return nullptr;
}

void RowLists::Work() {
  for (;;) {
    std::shared_ptr<Listing> listing;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || FirstWaiting() != nullptr;
      };
      mu_.Await(absl::Condition(&wakes));
      if (stops_) return;
      const Listing* const first = FirstWaiting();
      for (const auto& [number, one] : lists_) {
        if (one.get() == first) listing = one;
      }
      listing->begun = true;
    }
    Sink sink(this, listing.get());
    const absl::StatusOr<CopiedShard> copied = host_->Copy(listing->shard, &sink);
    absl::MutexLock lock(&mu_);
    listing->ended = true;
    listing->error = copied.status();
    if (!copied.ok()) continue;
    listing->epoch = copied->epoch;
    listing->lsn = copied->lsn;
  }
}

absl::StatusOr<v1::ReadChangesReply> RowLists::ReadChanges(const v1::ReadChangesRequest& request) {
  const int64_t now_ns = clock_->NowNs();
  v1::ReadChangesReply reply;
  for (const v1::ChangesAbove& asked : request.shards()) {
    v1::ShardChanges& said = *reply.add_shards();
    said.set_shard(asked.shard());
    const std::shared_ptr<Shard> shard = host_->Find(ShardId::FromPacked(asked.shard()));
    if (shard == nullptr || !shard->primary() || !shard->active()) {
      said.set_elsewhere(true);
      continue;
    }
    const ChangeFeed::Changes changes =
        shard->ReadChanges(asked.lsn(), std::min(request.ids_max(), kChangedIdsMax), now_ns);
    said.set_opening(!changes.open);
    // An LSN that is not reached yet is one of before a crash that lost changes (class checkpoint).
    const bool lost = asked.lsn() > changes.through && !asked.only_keep();
    said.set_known_above(lost ? ~uint64_t{0} : changes.from);
    said.set_through(changes.through);
    said.set_ids(BytesOfIds(changes.ids));
  }
  return reply;
}

}  // namespace hotbed
