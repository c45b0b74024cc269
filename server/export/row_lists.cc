#include "server/export/row_lists.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "checkpoint/weights.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "row_math/candidate.h"
#include "row_math/position.h"
#include "server/tiers/api/rows.h"

namespace hotbed {
namespace {

constexpr absl::Duration kListLook = absl::Milliseconds(500);
constexpr absl::Duration kMemoryLook = absl::Milliseconds(5);
// A block has so many bytes of rows as they are stored, or one row. An answer takes up to six times
// as much: the block, the ids and rows as fp32, their message, and gRPC's copy of it.
constexpr uint64_t kListBlockBytes = 96ull << 10;
constexpr uint64_t kListAnswerBytes = 6 * kListBlockBytes;

// Candidates for admission are listed with statistics alone. For others such a row does not exist;
// it may have come in place of one that they know, and that was deleted.
absl::Status AddRows(const SpillShard& spilled, const AdmissionParams& admission,
                     absl::string_view block, const v1::ListRowsRequest& request,
                     v1::ListRowsReply* reply) {
  const bool with_rows = request.with_rows();
  // Whoever lists all rows has none that could have been deleted.
  const bool with_deleted = request.above().through().lsn() != 0 && !request.of_one_moment();
  std::string& ids = *reply->mutable_ids();
  std::string& rows = *reply->mutable_rows();
  const WantedPlaces wanted = WantedPlaces::Of(request, spilled.hashed);
  return VisitRows(spilled, block, [&](uint64_t position, const uint8_t* payload) {
    if (!wanted.Include(position)) return;
    const uint64_t id = spilled.hashed ? Unmix64(position) : position;
    const uint8_t* const end = payload == nullptr ? nullptr : payload + spilled.payload_bytes;
    const bool candidate = payload != nullptr && IsCandidateRow(admission, end);
    if (candidate && !request.with_statistics()) payload = nullptr;
    std::string& to = payload == nullptr ? *reply->mutable_deleted() : ids;
    if (payload == nullptr && !with_deleted) return;
    to.append(reinterpret_cast<const char*>(&id), sizeof(id));
    if (payload == nullptr) return;
    if (request.with_statistics()) {
      reply->mutable_found()->push_back(candidate ? KnownTouches::kCandidate : KnownTouches::kRow);
      reply->mutable_touches()->append(reinterpret_cast<const char*>(end - kTouchBytes),
                                       kTouchBytes);
    }
    for (uint32_t k = 0; with_rows && k < spilled.dim; ++k) {
      const float weight =
          LoadWeight(payload + k * BytesPerWeight(spilled.weight_type), spilled.weight_type);
      rows.append(reinterpret_cast<const char*>(&weight), sizeof(weight));
    }
  });
}

absl::Status CheckStatistics(const v1::ListRowsRequest& request, const TableSpec& table) {
  if (!request.with_statistics()) return absl::OkStatus();
  if (!table.optimizer.touches) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.name,
                     " keeps no touches, so its rows have no statistics; list them without, or "
                     "make one with touches (a hashed table)"));
  }
  if (request.of_one_moment()) return absl::OkStatus();
  return absl::InvalidArgumentError("statistics are listed of one moment alone");
}

}  // namespace

RowLists::RowLists(ShardHost* host, ChangeReads* changes, const Clock* clock)
    : host_(host), changes_(changes), memory_(changes->memory()), clock_(clock) {
  for (int i = 0; i < kListThreads; ++i) threads_.emplace_back([this] { Work(); });
}

void RowLists::Stop() {
  std::deque<Page> pages;
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
    pages.swap(pages_);
  }
  for (Page& page : pages) {
    if (page.task) {
      page.task();
    } else {
      page.done(absl::UnavailableError("this server is stopping"), nullptr);
    }
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  absl::MutexLock lock(&mu_);
  lists_.clear();
}

void RowLists::List(const v1::ListRowsRequest& request, const std::string& connection,
                    ToolCalls::Done done) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mu_);
    auto it = lists_.find(request.list());
    if (stops_) {
      refused = absl::UnavailableError("this server is stopping");
    } else if (request.end()) {
      if (it != lists_.end()) Drop(it);  // a call in progress has its own share
    } else if (it == lists_.end() && request.goes_on()) {
      refused = absl::AbortedError(
          absl::StrCat("list ", request.list(), " is not known here any more; begin another one"));
    } else if (it != lists_.end() &&
               (it->second->busy || it->second->id.packed() != request.shard())) {
      refused = absl::InvalidArgumentError(
          absl::StrCat("list ", request.list(), " is one of ", it->second->id.ToString(),
                       ", or still answers a call; each list has a number of its own"));
    } else {
      if (it == lists_.end()) refused = share_.Take(connection);
      if (refused.ok() && it == lists_.end()) {
        it = lists_.emplace(request.list(), std::make_shared<Listing>()).first;
        it->second->id = ShardId::FromPacked(request.shard());
        it->second->connection = connection;
      }
      if (refused.ok()) {
        it->second->busy = true;
        pages_.push_back({it->second, request, std::move(done)});
        return;
      }
    }
  }
  if (!refused.ok()) return done(refused, nullptr);
  done(v1::ListRowsReply().SerializeAsString(), nullptr);
}

RowLists::Lists::iterator RowLists::Drop(Lists::iterator list) {
  share_.Give(list->second->connection);
  return lists_.erase(list);
}

bool RowLists::Run(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  if (stops_ || pages_.size() >= kListsMax + kTasksMax) return false;
  pages_.push_back({nullptr, {}, nullptr, std::move(task)});
  return true;
}

void RowLists::DropUnread(int64_t now_ns) {
  for (auto it = lists_.begin(); it != lists_.end();) {
    const bool unread = !it->second->busy && now_ns - it->second->read_ns >= kUnreadNsMax;
    it = unread ? Drop(it) : std::next(it);
  }
}

bool RowLists::AwaitMemory() {
  while (!memory_->TakeForAnswer(kListAnswerBytes)) {
    absl::MutexLock lock(&mu_);
    if (AwaitFor(&mu_, absl::Condition(&stops_), kMemoryLook)) return false;
  }
  return true;
}

void RowLists::Work() {
  for (;;) {
    Page page;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || !pages_.empty();
      };
      AwaitFor(&mu_, absl::Condition(&wakes), kListLook);
      if (stops_) return;
      DropUnread(clock_->NowNs());
      if (pages_.empty()) continue;
      page = std::move(pages_.front());
      pages_.pop_front();
    }
    page.task ? page.task() : Answer(&page);
  }
}

void RowLists::Answer(Page* page) {
  if (!AwaitMemory()) return page->done(absl::UnavailableError("this server is stopping"), nullptr);
  const std::shared_ptr<const void> held(
      nullptr, [memory = memory_](const void*) { memory->GiveFromAnswer(kListAnswerBytes); });
  Listing& listing = *page->listing;
  v1::ListRowsReply reply;
  absl::Status status;
  if (listing.rows == nullptr) status = Begin(page->request, &listing, &reply);
  if (status.ok() && listing.rows != nullptr) status = Read(page->request, &listing, &reply);
  const bool over = !status.ok() || listing.rows == nullptr || reply.ended();
  {
    absl::MutexLock lock(&mu_);
    listing.busy = false;
    listing.read_ns = clock_->NowNs();
    const auto it = lists_.find(page->request.list());
    if (over && it != lists_.end() && it->second == page->listing) Drop(it);
  }
  if (!status.ok()) return page->done(status, nullptr);
  page->done(reply.SerializeAsString(), held);
}

absl::Status RowLists::Begin(const v1::ListRowsRequest& request, Listing* listing,
                             v1::ListRowsReply* reply) {
  listing->shard = FindFollowed(*host_, listing->id, request.range_first(), request.range_limit());
  if (listing->shard == nullptr) {
    reply->set_elsewhere(true);
    return absl::OkStatus();
  }
  Shard& shard = *listing->shard;
  HOTBED_RETURN_IF_ERROR(CheckStatistics(request, shard.table()));
  const ReadPosition above = PositionOf(request.above());
  const Shard::FollowFrom begin = shard.BeginFollowing(above, !request.of_one_moment());
  if (!begin.status.ok() || begin.lost) {
    reply->set_elsewhere(!begin.status.ok());
    reply->set_lost(begin.status.ok());
    return absl::OkStatus();
  }
  listing->epoch = begin.epoch;
  if (!request.of_one_moment()) changes_->Watch(listing->shard);
  if (begin.at_end) {
    reply->set_ended(true);
    *reply->mutable_at() = ToWire({begin.applied, begin.applied});
    return absl::OkStatus();
  }
  if (request.of_one_moment()) HOTBED_RETURN_IF_ERROR(MayPause(listing->id));
  HOTBED_ASSIGN_OR_RETURN(Snapshot snapshot, request.of_one_moment()
                                                 ? host_->StillRows(listing->shard)
                                                 : shard.ChangedRows(above.through.lsn));
  listing->base = shard.PositionAt(snapshot.base.lsn);
  listing->rows = std::move(snapshot.rows);
  listing->rows->StayHere();
  shard.feed()->Touch(clock_->NowNs());  // the write-back may have taken long
  return absl::OkStatus();
}

absl::Status RowLists::MayPause(ShardId shard) {
  absl::MutexLock lock(&mu_);
  const int64_t now_ns = clock_->NowNs();
  std::erase_if(paused_ns_,
                [&](const auto& pause) { return now_ns - pause.second >= kPauseEveryNs; });
  if (paused_ns_.emplace(shard, now_ns).second) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(shard.ToString(), " was paused for a list of one moment within the last ",
                   kPauseEveryNs / kSecondNs, " s, allowed: once; ask again"));
}

absl::Status RowLists::Read(const v1::ListRowsRequest& request, Listing* listing,
                            v1::ListRowsReply* reply) {
  // A later call may ask for what the first one did not.
  HOTBED_RETURN_IF_ERROR(CheckStatistics(request, listing->shard->table()));
  Shard& shard = *listing->shard;
  shard.feed()->Touch(clock_->NowNs());
  HOTBED_ASSIGN_OR_RETURN(const std::string block, listing->rows->Next(kListBlockBytes));
  if (!block.empty()) {
    HOTBED_RETURN_IF_ERROR(
        AddRows(shard.spilled(), shard.table().life.admission, block, request, reply));
  }
  FollowCounters::Get().lists.Add(reply->ids().size() + reply->rows().size() +
                                  reply->deleted().size());
  // A shard that has left this server may have lost rows while they were read.
  if (!shard.PrimarySince(listing->epoch)) {
    return absl::AbortedError(
        absl::StrCat(listing->id.ToString(), " left this server while it was listed"));
  }
  shard.feed()->Touch(clock_->NowNs());
  *reply->mutable_at() = ToWire({listing->base, shard.AppliedPosition()});
  reply->set_ended(block.empty());
  return absl::OkStatus();
}

}  // namespace hotbed
