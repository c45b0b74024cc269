#include "serving/copy_lists.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint64_t kIdsPerPage = 1u << 16;  // that are looked for
constexpr uint32_t kBucketsPerStripe = kBuckets / ServedRows::kStripes;
constexpr uint32_t kWalkRows = 256;

// The ids of a stripe's rows that lie in the buckets [first, limit).
std::vector<uint64_t> IdsOf(const ServedRows& rows, uint32_t stripe, uint64_t first,
                            uint64_t limit) {
  std::vector<uint64_t> ids;
  const ServedRows::Reader reader(rows);
  ServedRows::Walk walk;
  reader.Begin(stripe, &walk);
  for (ServedRows::Run run; reader.Next(&walk, kWalkRows, &run);) {
    for (uint32_t i = 0; i < run.count; ++i) {
      const uint8_t* const row = run.rows + uint64_t{rows.row_stride()} * i;
      reader.Identify(stripe, row, [&](uint64_t id, const uint8_t*) {
        const uint32_t bucket = BucketOf(Mix64(id));
        if (bucket >= first && bucket < limit) ids.push_back(id);
      });
    }
  }
  return ids;
}

}  // namespace

// False: all rows were told. `list` is this call's alone.
bool CopyLists::ReadPage(List* list, v1::ListRowsReply* page) {
  const ServedRows& rows = *list->rows;
  const uint32_t row_bytes = rows.coder().row_bytes();
  const bool hashed = list->copy->places().hashed;
  if (hashed && list->ids.empty()) {
    const uint32_t stripe = static_cast<uint32_t>(list->next);
    if (uint64_t{stripe} * kBucketsPerStripe >= list->limit) return false;
    list->ids = IdsOf(rows, stripe, list->first, list->limit);
    ++list->next;
  }
  const ServedRows::Reader reader(rows);
  uint64_t looked = 0;
  while (page->ids().size() + page->rows().size() < kListPageBytes && looked < kIdsPerPage) {
    if (hashed ? list->ids.empty() : list->next >= list->limit) return hashed;
    const uint64_t id = hashed ? list->ids.back() : list->next++;
    if (hashed) list->ids.pop_back();
    ++looked;
    const uint8_t* const row = reader.Find(id);
    if (row == nullptr) continue;
    page->mutable_ids()->append(reinterpret_cast<const char*>(&id), sizeof(id));
    page->mutable_rows()->append(reinterpret_cast<const char*>(row), row_bytes);
  }
  return true;
}

absl::Status CopyLists::Find(const std::shared_ptr<const TableReplica>& copy,
                             const v1::ListRowsRequest& request, std::shared_ptr<List>* list,
                             v1::ListCopyReply* reply) {
  absl::MutexLock lock(&mu_);
  const auto found = lists_.find(request.list());
  if (request.end()) {
    if (found != lists_.end() && !found->second->busy) lists_.erase(found);
    return absl::OkStatus();
  }
  if (found != lists_.end()) {
    if (found->second->busy || found->second->copy != copy) {
      return absl::AbortedError(absl::StrCat("list ", request.list(),
                                             " is one of another copy, or still answers a call"));
    }
    found->second->busy = true;
    *list = found->second;
    return absl::OkStatus();
  }
  if (request.goes_on()) {
    return absl::AbortedError(
        absl::StrCat("list ", request.list(), " is not known here any more; begin another one"));
  }
  if (copy == nullptr || (copy->relay()->feeder().empty() && !copy->ready())) {
    reply->set_loading(true);
    if (copy != nullptr) reply->set_loaded_rows(copy->rows()->rows());
    return absl::OkStatus();
  }
  std::optional<CopyRelay::Known> known;
  if (copy->relay()->feeder().empty())
    known = copy->relay()->BeginList(request.range_first(), request.range_limit());
  // Asked last: rows that come again from now on end this list (CopyRelay::SeenOf).
  if (!known.has_value() || copy->OnDiskAlone() || copy->ComesAgain()) {
    reply->mutable_rows()->set_elsewhere(true);
    return absl::OkStatus();
  }
  if (lists_.size() >= kCopyListsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kCopyListsMax, " lists are read at this server, the limit: ask again later"));
  }
  *list = std::make_shared<List>();
  (*list)->copy = copy;
  (*list)->rows = copy->rows();
  (*list)->known = *known;
  (*list)->first = request.range_first();
  (*list)->limit = request.range_limit();
  (*list)->next =
      copy->places().hashed ? request.range_first() / kBucketsPerStripe : request.range_first();
  lists_[request.list()] = *list;
  return absl::OkStatus();
}

absl::Status CopyLists::Read(std::shared_ptr<const TableReplica> copy,
                             const v1::ListRowsRequest& request, v1::ListCopyReply* reply) {
  std::shared_ptr<List> list;
  HOTBED_RETURN_IF_ERROR(Find(copy, request, &list, reply));
  if (list == nullptr) return absl::OkStatus();
  v1::ListRowsReply& page = *reply->mutable_rows();
  const bool ended = !ReadPage(list.get(), &page);
  // After the rows: none of them is newer.
  const std::optional<v1::LogPlace> seen =
      copy->relay()->SeenOf(list->first, list->limit, list->known);
  // It goes on where the copy follows another one by now: its rows become no older by that.
  const bool lost = !seen.has_value() || copy->OnDiskAlone();
  if (lost) {
    page.Clear();
    page.set_elsewhere(true);
  } else {
    *page.mutable_at()->mutable_through() = list->known.through;
    *page.mutable_at()->mutable_seen() = *seen;
    page.set_ended(ended);
  }
  absl::MutexLock lock(&mu_);
  list->busy = false;
  list->read_ns = clock_.NowNs();
  if (lost || ended) lists_.erase(request.list());
  return absl::OkStatus();
}

void CopyLists::DropUnread() {
  absl::MutexLock lock(&mu_);
  const int64_t now_ns = clock_.NowNs();
  for (auto it = lists_.begin(); it != lists_.end();) {
    const bool unread = !it->second->busy && now_ns - it->second->read_ns > kUnreadListNsMax;
    it = unread ? lists_.erase(it) : std::next(it);
  }
}

void CopyLists::Clear() {
  absl::MutexLock lock(&mu_);
  lists_.clear();
}

}  // namespace hotbed
