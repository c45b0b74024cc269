// Follow: each shard is listed, all of it or what has changed since its position, and then asked
// for what changes. Calls to all servers are open at the same time, on one queue that Next polls.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/changes/follow_as.h"
#include "client/changes/joined_stream.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "hotbed/changes.h"
#include "row_math/position.h"
#include "row_math/touches.h"

namespace hotbed {
namespace {

constexpr int64_t kFollowRetryNs = kSecondNs / 5;  // of a shard without a server
constexpr int64_t kBusyRetryNs = kSecondNs / 2;    // of a server that has too much to do
constexpr int64_t kMapRefreshNs = 10 * kSecondNs;  // of the map, in any case
// Next waits so long for the map, though rows may be ready.
constexpr absl::Duration kMapTimeout = absl::Seconds(2);
constexpr int64_t kLookNs = kSecondNs / 20;  // between looks at clocks
constexpr size_t kListsOpen = 4;
constexpr size_t kCallsPerServer = 4;
constexpr size_t kFollowedPerCall = 512;
constexpr uint32_t kAnswerBytesMax = 256u << 10;
constexpr size_t kReadyBytesMax = 1u << 20;  // beyond it nothing is asked for
constexpr uint32_t kWaitMs = 250;
constexpr int64_t kListDeadlineMs = 60'000;  // a server may have many rows to write back first
constexpr int64_t kChangesDeadlineMs = 5'000;
constexpr int64_t kEndDeadlineMs = 1'000;
constexpr int64_t kFeederDeadlineMs = 1'000;        // one that is silent makes rows so old
constexpr int64_t kFeederAgeNsMax = 2 * kSecondNs;  // one that is later is left
constexpr int64_t kFeederPauseNs = kSecondNs;       // doubled with each failure, up to:
constexpr int64_t kFeederPauseNsMax = 16 * kSecondNs;
constexpr int64_t kFeederLoadsNs = 10 * kSecondNs;     // without another row, until it is left
constexpr int64_t kFeederJoinNs = 3 * kSecondNs / 10;  // of a shard that it had no answer for

template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Two streams must not take each other's lists.
uint64_t RandomNumber() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

gpr_timespec In(int64_t ns) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(ns, GPR_TIMESPAN));
}

bool Inside(const ChangedRange& inner, const ChangedRange& outer) {
  return inner.first >= outer.first && inner.limit <= outer.limit &&
         inner.column_first == outer.column_first && inner.column_limit == outer.column_limit;
}

bool Overlap(const ChangedRange& a, const ChangedRange& b) {
  return a.first < b.limit && b.first < a.limit && a.column_first == b.column_first &&
         a.column_limit == b.column_limit;
}

// A shard, as far as it was read and told.
struct Followed {
  enum class State { kToList, kListing, kListed, kFollowing };
  State state = State::kToList;
  ChangedRange range;
  std::string address;
  v1::ReadPlace read;
  uint64_t skip = 0;
  v1::RelayCursor cursor;         // of the feeder, if the last answer was its
  int64_t fed_not_before_ns = 0;  // until then it is followed at its primary
  v1::LogPlace seen_besides;      // of rows that others have read
  v1::ReadPlace told;
  int64_t told_ns = 0;  // everything up to this time was told; 0: never yet
  uint64_t list = 0;
  std::string fed_list;          // the address of the feeder whose list it is; empty: a primary's
  bool asked = false;            // in a call
  int64_t failing_since_ns = 0;  // 0: it is not
  int64_t not_before_ns = 0;
  std::string error;
};

v1::LogPlace Later(const v1::LogPlace& a, const v1::LogPlace& b) {
  return std::pair(a.epoch(), a.lsn()) < std::pair(b.epoch(), b.lsn()) ? b : a;
}

// With the rows that others have read.
v1::ReadPlace WithSeen(v1::ReadPlace place, const Followed& shard) {
  if (shard.seen_besides.lsn() == 0) return place;
  *place.mutable_seen() = Later(place.seen(), shard.seen_besides);
  return place;
}

// A call in progress.
struct OpenCall {
  explicit OpenCall(std::string asked) : address(std::move(asked)) {}
  const std::string address;
  std::vector<std::pair<uint32_t, ChangedRange>> shards;
  grpc::ClientContext context;
  grpc::Status status;
  bool lists = false;
  bool feeder = false;  // asked, not a primary
  int64_t asked_ns = 0;
  v1::ListRowsReply listed;
  v1::ListCopyReply fed_listed;
  v1::ReadChangesReply changed;
  v1::FollowCopyReply fed;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ListRowsReply>> list_reader;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ListCopyReply>> fed_list_reader;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ReadChangesReply>> change_reader;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::FollowCopyReply>> fed_reader;
};

class TableStream : public IdStream {
 public:
  TableStream(std::string table, std::unique_ptr<GrpcCheckpointCluster> cluster,
              FollowOptions options, uint32_t table_id, CopyFeed feed, bool every_slice,
              const Clock* clock)
      : table_(std::move(table)),
        cluster_(std::move(cluster)),
        options_(std::move(options)),
        clock_(*clock),
        feeder_{std::move(feed)},
        every_slice_(every_slice),
        lists_(RandomNumber()),
        table_id_(table_id) {}

  ~TableStream() override {
    for (auto& [tag, call] : calls_) call->context.TryCancel();
    for (const auto& [index, shard] : shards_) {
      if (shard.state == State::kListing && shard.fed_list.empty()) EndList(index, shard);
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::Status Start() {
    HOTBED_RETURN_IF_ERROR(Refresh(absl::Seconds(10)));
    const std::deque<Ready> later = std::exchange(ready_, {});
    for (const RangePosition& from : options_.from) {
      if (options_.once || from.table == table_number_) continue;
      others_.push_back(from);
      TellAgain(/*index=*/0, from.range);
    }
    ready_.insert(ready_.end(), later.begin(), later.end());
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<RowChanges>> Next(absl::Duration wait) override {
    HOTBED_ASSIGN_OR_RETURN(std::optional<CopyChanges> next, NextOfCopy(wait));
    if (!next.has_value()) return std::nullopt;
    return std::optional<RowChanges>(std::move(static_cast<RowChanges&>(*next)));
  }

  absl::StatusOr<std::optional<CopyChanges>> NextOfCopy(absl::Duration wait) override {
    const int64_t until_ns = clock_.NowNs() + absl::ToInt64Nanoseconds(wait);
    for (;;) {
      HOTBED_RETURN_IF_ERROR(RefreshIfDue());
      Ask();
      // Takes the answers that have arrived; if there is none, waits for the first.
      bool any = TakeArrived(0);
      if (!ready_.empty()) {
        Ask();
        return Take();
      }
      if (ended()) return std::nullopt;
      HOTBED_RETURN_IF_ERROR(CheckPatience());
      const int64_t now_ns = clock_.NowNs();
      if (now_ns >= until_ns) return std::nullopt;
      if (!any) TakeArrived(std::min(until_ns - now_ns, kLookNs));
    }
  }

  ChangePositions Positions() const override {
    ChangePositions positions(others_.begin(), others_.end());
    positions.insert(positions.end(), merged_.begin(), merged_.end());
    for (const auto& [index, shard] : shards_) {
      if (!IsTold(shard)) continue;
      positions.push_back(PositionOf(shard.range, WithSeen(shard.told, shard)));
    }
    return positions;
  }

  absl::Duration Age() const override {
    if (shards_.empty()) return absl::InfiniteDuration();
    int64_t told_ns = clock_.NowNs();
    const int64_t now_ns = told_ns;
    for (const auto& [index, shard] : shards_) {
      if (shard.told_ns == 0) return absl::InfiniteDuration();
      told_ns = std::min(told_ns, shard.told_ns);
    }
    return absl::Nanoseconds(now_ns - told_ns);
  }

  void NoteSeen(uint32_t shard, const v1::LogPlace& at) override {
    const auto found = shards_.find(shard);
    if (found != shards_.end()) found->second.seen_besides = Later(found->second.seen_besides, at);
  }

  bool ended() const override {
    return options_.once && ready_.empty() &&
           std::all_of(shards_.begin(), shards_.end(), [](const auto& one) {
             return one.second.state == Followed::State::kListed;
           });
  }

 private:
  using State = Followed::State;
  struct Feeder {
    CopyFeed feed;
    std::string address;  // empty: there is none
    int64_t not_before_ns = 0;
    int64_t pause_ns = 0;  // the last one; 0: it has answered since
    uint64_t loaded_rows = 0;
    int64_t loaded_ns = 0;  // when they became more; 0: it does not load
  };
  struct Ready {
    CopyChanges changes;
    v1::ReadPlace told;   // with it
    int64_t told_ns = 0;  // 0: there may be more that was not told
    bool listed = false;
  };

  // --- the map

  absl::Status RefreshIfDue() {
    const int64_t age_ns = clock_.NowNs() - refreshed_ns_;
    const bool failing = std::any_of(shards_.begin(), shards_.end(), [](const auto& one) {
      return one.second.failing_since_ns != 0;
    });
    if (age_ns < (failing ? kFollowRetryNs : kMapRefreshNs)) return absl::OkStatus();
    const absl::Status refreshed = Refresh(kMapTimeout);
    return absl::IsNotFound(refreshed) ? refreshed : absl::OkStatus();
  }

  absl::Status Refresh(absl::Duration timeout) {
    const absl::StatusOr<v1::ClusterMap> answer = cluster_->GetMap(timeout);
    refreshed_ns_ = clock_.NowNs();  // a coordinator that does not answer has its pauses too
    HOTBED_RETURN_IF_ERROR(answer.status());
    const v1::ClusterMap& map = *answer;
    std::map<uint64_t, std::string> addresses;
    for (const v1::ServerInfo& server : map.servers()) {
      addresses[server.server()] = server.address();
    }
    uint32_t table = 0;
    for (const v1::TableSpec& spec : map.tables()) {
      if (spec.name() != table_) continue;
      table = spec.id();
      hashed_ = spec.hashed();
    }
    if (table == 0 || (table_id_ != 0 && table != table_id_)) {
      return absl::NotFoundError(table_id_ == 0
                                     ? absl::StrCat("table \"", table_, "\" does not exist")
                                     : absl::StrCat("table \"", table_, "\" was dropped"));
    }
    table_id_ = table;
    table_number_ = NumberOfTable(map.cluster_id(), table);
    std::map<uint32_t, Followed> shards;
    for (const v1::ShardRecord& record : map.shards()) {
      const ShardId id = ShardId::FromPacked(record.shard());
      if (id.table != table || !MayHaveRows(record)) continue;
      Followed& shard = shards[id.index];
      const ChangedRange range = {record.range_first(), record.range_limit(), record.column_first(),
                                  record.column_limit()};
      shard = KnownPart(id.index, range);
      shard.address = addresses[record.primary().server()];
    }
    shards_ = std::move(shards);
    return absl::OkStatus();
  }

  static bool IsTold(const Followed& shard) {
    return shard.told.through().lsn() != 0 || shard.told.seen().lsn() != 0;
  }
  RangePosition PositionOf(const ChangedRange& range, const v1::ReadPlace& told) const {
    return {table_number_,          range,
            told.through().epoch(), told.through().lsn(),
            told.seen().epoch(),    told.seen().lsn()};
  }

  // A shard that was cut goes on as its parts: each has the rows and the log of the whole. One that
  // was merged has a log of its own. All its rows are listed, and since a list names no deletions,
  // the reader is to forget what it was told of the parts.
  Followed KnownPart(uint32_t index, const ChangedRange& range) {
    const auto same = shards_.find(index);
    if (same != shards_.end() && same->second.range == range) return same->second;
    Followed part;
    part.range = range;
    for (const auto& [other, whole] : shards_) {
      if (!Inside(range, whole.range)) continue;
      part.read = whole.read;
      part.told = whole.told;
      part.told_ns = whole.told_ns;
      if (whole.state == State::kListed) part.state = State::kListed;
      return part;
    }
    if (options_.once) return part;
    bool merged = false;
    for (const auto& [other, shard] : shards_) {
      if (!Overlap(range, shard.range)) continue;
      merged = true;
      if (IsTold(shard)) merged_.push_back(PositionOf(shard.range, shard.told));
    }
    for (const RangePosition& from : options_.from) {
      if (merged || from.table != table_number_ || !Inside(range, from.range)) continue;
      part.read.mutable_through()->set_epoch(from.epoch);
      part.read.mutable_through()->set_lsn(from.lsn);
      part.read.mutable_seen()->set_epoch(from.seen_epoch);
      part.read.mutable_seen()->set_lsn(from.seen_lsn);
      part.told = part.read;
      // The servers may still know what has changed since.
      if (from.lsn != 0) part.state = State::kFollowing;
      return part;
    }
    if (!merged) merged = AddOverlapping(range);
    if (merged) TellAgain(index, range);
    return part;
  }

  // Positions that the stream began from, of parts of the range.
  bool AddOverlapping(const ChangedRange& range) {
    const size_t before = merged_.size();
    for (const RangePosition& from : options_.from) {
      if (from.table == table_number_ && Overlap(range, from.range)) merged_.push_back(from);
    }
    return merged_.size() > before;
  }

  // Every column slice has the same ids.
  bool MayHaveRows(const v1::ShardRecord& record) const {
    if (!options_.with_rows && !every_slice_ && record.column_first() != 0) return false;
    if (record.range_first() >= options_.limit_place ||
        record.range_limit() <= options_.first_place) {
      return false;
    }
    return hashed_ ||
           (record.range_first() <= options_.last_id && record.range_limit() > options_.first_id);
  }

  // Null: it was cut or has left the map since it was asked for.
  Followed* Find(const std::pair<uint32_t, ChangedRange>& asked) {
    const auto it = shards_.find(asked.first);
    return it != shards_.end() && it->second.range == asked.second ? &it->second : nullptr;
  }

  // Another server has the shard by now, or will have it.
  void Fail(Followed* shard, std::string error) {
    const int64_t now_ns = clock_.NowNs();
    if (shard->failing_since_ns == 0) shard->failing_since_ns = now_ns;
    shard->not_before_ns = now_ns + kFollowRetryNs;
    shard->error = std::move(error);
    if (shard->state == State::kListing) shard->state = State::kToList;
  }

  // Its server is there, and others take up what it has to give.
  void Postpone(Followed* shard) {
    shard->failing_since_ns = 0;
    shard->not_before_ns = clock_.NowNs() + kBusyRetryNs;
    if (shard->state == State::kListing) shard->state = State::kToList;
  }

  // A call that the caller's role may not make, or its table has no answer to, is not repeated.
  void NoteRefusal(const grpc::Status& status) {
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    const bool no_statistics =
        options_.with_statistics && code == absl::StatusCode::kInvalidArgument;
    if (code != absl::StatusCode::kPermissionDenied && code != absl::StatusCode::kUnauthenticated &&
        !no_statistics) {
      return;
    }
    refused_ = absl::Status(code, status.error_message());
  }

  absl::Status CheckPatience() {
    if (!refused_.ok()) return refused_;
    for (const auto& [index, shard] : shards_) {
      if (shard.failing_since_ns == 0 ||
          clock_.NowNs() - shard.failing_since_ns < absl::ToInt64Nanoseconds(options_.patience)) {
        continue;
      }
      return absl::UnavailableError(
          absl::StrCat(ShardId{table_id_, index}.ToString(), " was not reached within ",
                       absl::FormatDuration(options_.patience), ": ", shard.error));
    }
    return absl::OkStatus();
  }

  // --- asking

  void Ask() {
    size_t ready_bytes = 0;
    for (const Ready& ready : ready_) {
      ready_bytes += ready.changes.ids.size() * sizeof(uint64_t) +
                     ready.changes.rows.size() * sizeof(float) + ready.changes.bytes.size();
    }
    if (ready_bytes >= kReadyBytesMax) return;
    // A reader that is slower than the changes gets more of them per answer, and newer values, if
    // it asks as late as it can.
    const bool changes_wait = changes_ready_ > 1;
    const int64_t now_ns = clock_.NowNs();
    std::map<std::string, size_t> calls;
    size_t lists = 0;
    for (const auto& [tag, call] : calls_) {
      (call->lists ? lists : calls[call->address]) += 1;
    }
    LookForFeeder();
    std::map<std::pair<std::string, bool>, std::vector<uint32_t>> following;  // by address
    for (auto& [index, shard] : shards_) {
      if (shard.asked || shard.state == State::kListed) continue;
      const bool fed = shard.state == State::kFollowing && MayBeFed(shard, now_ns);
      if (!fed && now_ns < shard.not_before_ns) continue;
      if (shard.state == State::kFollowing) {
        const std::string& address = fed ? feeder_.address : shard.address;
        if (!changes_wait) following[{address, fed}].push_back(index);
      } else if (shard.state == State::kListing || lists < kListsOpen) {
        AskForRows(index, &shard);
        ++lists;
      }
    }
    for (const auto& [whom, indexes] : following) {
      const auto& [address, fed] = whom;
      for (size_t first = 0; first < indexes.size() && calls[address] < kCallsPerServer;
           first += kFollowedPerCall, ++calls[address]) {
        const size_t limit = std::min(indexes.size(), first + kFollowedPerCall);
        AskForChanges(address, fed, {indexes.begin() + first, indexes.begin() + limit});
      }
    }
  }

  void LookForFeeder() {
    if (!feeder_.feed.feeder) return;
    std::string address = feeder_.feed.feeder();
    if (address == feeder_.address) return;
    feeder_.address = std::move(address);
    feeder_.not_before_ns = 0;
    feeder_.pause_ns = 0;
    feeder_.loaded_ns = 0;
    for (auto& [index, shard] : shards_) shard.fed_not_before_ns = 0;
  }

  bool MayBeFed(const Followed& shard, int64_t now_ns) const {
    const bool has_read = shard.read.through().lsn() != 0;
    const bool begun = has_read || shard.read.seen().lsn() != 0;
    return !feeder_.address.empty() && now_ns >= feeder_.not_before_ns &&
           now_ns >= shard.fed_not_before_ns &&
           (shard.state == State::kFollowing ? has_read : !begun && !options_.once);
  }

  // The primaries are asked meanwhile. Calls that were open together fail once.
  void RestFromFeeder() {
    if (clock_.NowNs() < feeder_.not_before_ns) return;
    feeder_.pause_ns = std::clamp(2 * feeder_.pause_ns, kFeederPauseNs, kFeederPauseNsMax);
    feeder_.not_before_ns = clock_.NowNs() + feeder_.pause_ns;
  }

  OpenCall* NewCall(const std::string& address, int64_t deadline_ms) {
    auto call = std::make_unique<OpenCall>(address);
    call->context.set_deadline(In(deadline_ms * kMillisecondNs));
    call->asked_ns = clock_.NowNs();
    OpenCall* const made = call.get();
    calls_[made] = std::move(call);
    return made;
  }

  void AskForRows(uint32_t index, Followed* shard) {
    const bool goes_on = shard->state == State::kListing;
    if (!goes_on) {
      // A list of all rows does not name those that were deleted since one before was broken off.
      shard->fed_list = MayBeFed(*shard, clock_.NowNs()) ? feeder_.address : "";
      const bool begun = shard->read.through().lsn() == 0 && shard->read.seen().lsn() != 0;
      if (begun && hashed_ && !options_.once) Forget(index, shard);
      shard->list = ++lists_;
    }
    shard->state = State::kListing;
    shard->asked = true;
    v1::ListRowsRequest request;
    request.set_list(shard->list);
    request.set_shard(ShardId{table_id_, index}.packed());
    request.set_range_first(shard->range.first);
    request.set_range_limit(shard->range.limit);
    if (!options_.once) *request.mutable_above() = WithSeen(shard->read, *shard);
    request.set_of_one_moment(options_.once);
    request.set_with_rows(options_.with_rows);
    request.set_goes_on(goes_on);
    request.set_with_statistics(options_.with_statistics);
    SetPlaces(&request);
    const bool fed = !shard->fed_list.empty();
    const std::string& address = fed ? shard->fed_list : shard->address;  // to its end
    OpenCall* const call = NewCall(address, kListDeadlineMs);
    call->lists = true;
    call->feeder = fed;
    call->shards = {{index, shard->range}};
    if (fed) {
      v1::ListCopyRequest list;
      *list.mutable_copy() = feeder_.feed.copy;
      *list.mutable_list() = std::move(request);
      call->fed_list_reader =
          cluster_->RelayAt(address)->AsyncListCopy(&call->context, list, &queue_);
      call->fed_list_reader->Finish(&call->fed_listed, &call->status, call);
      return;
    }
    call->list_reader =
        cluster_->ChangesAt(shard->address)->AsyncListRows(&call->context, request, &queue_);
    call->list_reader->Finish(&call->listed, &call->status, call);
  }

  // The primaries leave out the rows that Wants would drop.
  template <typename Request>
  void SetPlaces(Request* request) const {
    if (options_.first_place == 0 && options_.limit_place == ~uint64_t{0}) return;
    request->set_first_place(options_.first_place);
    request->set_limit_place(options_.limit_place);
  }

  // `fed`: the address is the feeder's.
  void AskForChanges(const std::string& address, bool fed, std::vector<uint32_t> indexes) {
    // Those at the end of one answer are first in the next.
    std::rotate(indexes.begin(), indexes.begin() + static_cast<ptrdiff_t>(turn_++ % indexes.size()),
                indexes.end());
    v1::ReadChangesRequest request;
    request.set_bytes_max(kAnswerBytesMax);
    request.set_wait_ms(kWaitMs);
    request.set_with_rows(options_.with_rows);
    SetPlaces(&request);
    OpenCall* const call = NewCall(address, fed ? kFeederDeadlineMs : kChangesDeadlineMs);
    call->feeder = fed;
    for (const uint32_t index : indexes) {
      Followed& shard = shards_.at(index);
      shard.asked = true;
      call->shards.emplace_back(index, shard.range);
      v1::FollowedShard& asked = *request.add_shards();
      asked.set_shard(ShardId{table_id_, index}.packed());
      asked.set_range_first(shard.range.first);
      asked.set_range_limit(shard.range.limit);
      *asked.mutable_above() = WithSeen(shard.read, shard);
      asked.set_skip(shard.skip);
      if (fed && shard.cursor.run() != 0) *asked.mutable_cursor() = shard.cursor;
    }
    if (fed) {
      v1::FollowCopyRequest follow;
      *follow.mutable_copy() = feeder_.feed.copy;
      *follow.mutable_changes() = std::move(request);
      call->fed_reader =
          cluster_->RelayAt(address)->AsyncFollowCopy(&call->context, follow, &queue_);
      call->fed_reader->Finish(&call->fed, &call->status, call);
      return;
    }
    call->change_reader =
        cluster_->ChangesAt(address)->AsyncReadChanges(&call->context, request, &queue_);
    call->change_reader->Finish(&call->changed, &call->status, call);
  }

  // Nobody reads it any more. If the server does not hear of it, it finds out by itself.
  void EndList(uint32_t index, const Followed& shard) {
    v1::ListRowsRequest request;
    request.set_list(shard.list);
    request.set_shard(ShardId{table_id_, index}.packed());
    request.set_end(true);
    grpc::ClientContext context;
    context.set_deadline(In(kEndDeadlineMs * kMillisecondNs));
    v1::ListRowsReply reply;
    (void)cluster_->ChangesAt(shard.address)->ListRows(&context, request, &reply);
  }

  // --- answers

  // Whether something has arrived within `ns`.
  bool TakeArrived(int64_t ns) {
    bool any = false;
    for (;;) {
      void* tag = nullptr;
      bool ok = false;
      if (queue_.AsyncNext(&tag, &ok, In(any ? 0 : ns)) != grpc::CompletionQueue::GOT_EVENT) {
        return any;
      }
      any = true;
      const auto it = calls_.find(static_cast<OpenCall*>(tag));
      const std::unique_ptr<OpenCall> call = std::move(it->second);
      calls_.erase(it);
      for (const auto& asked : call->shards) {
        if (Followed* const shard = Find(asked)) shard->asked = false;
      }
      if (call->lists) {
        TakeListed(*call);
      } else {
        TakeChanged(*call);
      }
    }
  }

  void TakeListed(const OpenCall& call) {
    Followed* const shard = Find(call.shards[0]);
    if (shard == nullptr) return;
    const v1::ListRowsReply& reply = call.feeder ? call.fed_listed.rows() : call.listed;
    if (!call.feeder) NoteRefusal(call.status);
    if (call.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      return call.feeder ? PostponeFedList(call, shard) : Postpone(shard);
    }
    if (call.feeder && (!call.status.ok() || reply.elsewhere() || call.fed_listed.loading())) {
      return LeaveFedList(call, shard);
    }
    if (!call.status.ok() || reply.elsewhere()) {
      return Fail(shard,
                  call.status.ok() ? "its primary is another server" : call.status.error_message());
    }
    shard->failing_since_ns = 0;
    shard->cursor.Clear();
    if (reply.lost()) return Forget(call.shards[0].first, shard);
    if (!reply.ended()) {
      *shard->read.mutable_seen() = reply.at().seen();
      // A scan is as of one LSN; a stream has no more than before until the list ends.
      const v1::ReadPlace& through = options_.once ? reply.at() : shard->read;
      return Add(call.shards[0].first, *shard, /*listed=*/true, reply, through.through().lsn(),
                 /*told_ns=*/0, call.feeder);
    }
    shard->read = reply.at();
    shard->skip = 0;
    shard->state = options_.once ? State::kListed : State::kFollowing;
    Add(call.shards[0].first, *shard, /*listed=*/true, reply, reply.at().through().lsn(),
        /*told_ns=*/0, call.feeder);  // the server may not be the primary by now
  }

  // The page that was refused is asked for again, for as long as the feeder keeps the list. A list
  // that has not begun is the primary's.
  void PostponeFedList(const OpenCall& call, Followed* shard) {
    const bool has_begun = shard->read.seen().lsn() != 0;
    if (!has_begun) return LeaveFedList(call, shard);
    shard->not_before_ns = clock_.NowNs() + kBusyRetryNs;
  }

  // The primary lists the shard at once, unless the feeder still gets its rows.
  void LeaveFedList(const OpenCall& call, Followed* shard) {
    const int64_t now_ns = clock_.NowNs();
    shard->state = State::kToList;
    if (call.address != feeder_.address) return;  // another one feeds by now
    if (!call.status.ok()) return RestFromFeeder();
    shard->fed_not_before_ns = now_ns + kFeederJoinNs;
    if (!call.fed_listed.loading()) return;
    if (feeder_.loaded_ns == 0 || call.fed_listed.loaded_rows() != feeder_.loaded_rows) {
      feeder_.loaded_rows = call.fed_listed.loaded_rows();
      feeder_.loaded_ns = now_ns;
    }
    if (now_ns - feeder_.loaded_ns < kFeederLoadsNs)
      shard->not_before_ns = shard->fed_not_before_ns;
  }

  // Changes that were told are lost: everything comes again.
  void Forget(uint32_t index, Followed* shard) {
    shard->read.Clear();
    shard->skip = 0;
    shard->state = State::kToList;
    TellAgain(index, shard->range);
  }

  void TellAgain(uint32_t index, const ChangedRange& range) {
    Ready& ready = ready_.emplace_back();
    ready.listed = true;
    ready.changes.shard = index;
    ready.changes.range = range;
    ready.changes.again = true;
  }

  void TakeChanged(const OpenCall& call) {
    if (!call.status.ok()) return TakeFailed(call);
    const v1::ReadChangesReply& reply = call.feeder ? call.fed.changes() : call.changed;
    int64_t told_ns = call.asked_ns;
    const bool feeds = call.feeder && call.address == feeder_.address;  // still
    if (call.feeder) {
      const int64_t age_ns = static_cast<int64_t>(call.fed.age_us()) * 1000;
      told_ns -= age_ns;
      if (feeds && age_ns > kFeederAgeNsMax) {
        RestFromFeeder();
      } else if (feeds) {
        feeder_.pause_ns = 0;
      }
    }
    for (const auto& asked : call.shards) {
      if (Followed* const shard = Find(asked)) shard->failing_since_ns = 0;
    }
    std::set<uint32_t> left;                           // shards that the feeder cannot tell of
    std::map<uint64_t, const v1::ShardChanges*> last;  // a feeder may tell several of a shard
    for (const v1::ShardChanges& said : reply.shards()) last[said.shard()] = &said;
    for (const v1::ShardChanges& said : reply.shards()) {
      const uint32_t index = ShardId::FromPacked(said.shard()).index;
      const auto asked = std::find_if(call.shards.begin(), call.shards.end(),
                                      [index](const auto& one) { return one.first == index; });
      if (asked == call.shards.end()) continue;
      Followed* const shard = Find(*asked);
      if (shard == nullptr) continue;
      if (call.feeder && (said.elsewhere() || said.behind())) {
        if (feeds) shard->fed_not_before_ns = clock_.NowNs() + kFeederJoinNs;
        left.insert(index);
      } else if (said.elsewhere()) {
        Fail(shard, "its primary is another server");
      } else if (said.behind()) {
        shard->state = State::kToList;
        shard->skip = 0;
      } else {
        shard->read = said.at();
        shard->skip = said.skip();
        shard->cursor = said.cursor();
        Add(index, *shard, /*listed=*/false, said, said.at().through().lsn(),
            reply.more() || last[said.shard()] != &said ? 0 : told_ns, call.feeder);
      }
    }
    if (reply.more()) return;
    // The others have had no change since then.
    for (const auto& asked : call.shards) {
      Followed* const shard = Find(asked);
      const bool unanswered = shard == nullptr || shard->state != State::kFollowing ||
                              shard->failing_since_ns != 0 || HasReady(asked.second) ||
                              left.contains(asked.first);
      if (!unanswered) shard->told_ns = std::max(shard->told_ns, told_ns);
    }
  }

  void TakeFailed(const OpenCall& call) {
    if (call.feeder) {
      if (call.address == feeder_.address) RestFromFeeder();
      return;
    }
    NoteRefusal(call.status);
    for (const auto& asked : call.shards) {
      Followed* const shard = Find(asked);
      if (shard == nullptr) continue;
      if (call.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
        Postpone(shard);
      } else {
        Fail(shard, call.status.error_message());
      }
    }
  }

  bool HasReady(const ChangedRange& range) const {
    return std::any_of(ready_.begin(), ready_.end(),
                       [&](const Ready& one) { return Inside(range, one.changes.range); });
  }

  // Reply: ListRowsReply or ShardChanges.
  template <typename Reply>
  void Add(uint32_t index, const Followed& shard, bool listed, const Reply& reply, uint64_t lsn,
           int64_t told_ns, bool coded = false) {
    Ready& ready = ready_.emplace_back();
    ready.told = shard.read;
    ready.told_ns = told_ns;
    ready.listed = listed;
    changes_ready_ += listed ? 0 : 1;
    CopyChanges& changes = ready.changes;
    changes.shard = index;
    changes.range = shard.range;
    changes.lsn = lsn;
    changes.ids = ValuesOf<uint64_t>(reply.ids());
    changes.deleted = ValuesOf<uint64_t>(reply.deleted());
    changes.partial = shard.skip != 0 || (listed && shard.state == State::kListing);
    changes.coded = coded;
    if (coded) {
      changes.bytes = reply.rows();
      return;  // the feeder has the same rows as this copy
    }
    changes.rows = ValuesOf<float>(reply.rows());
    if constexpr (std::is_same_v<Reply, v1::ListRowsReply>) AddStatistics(reply, &changes);
    KeepWanted(&changes);
  }

  static void AddStatistics(const v1::ListRowsReply& reply, RowChanges* changes) {
    const auto* const touches = reinterpret_cast<const uint8_t*>(reply.touches().data());
    const size_t count = std::min(reply.found().size(), reply.touches().size() / kTouchBytes);
    for (size_t i = 0; i < count; ++i) {
      const RowTouches row = LoadTouches(touches + i * kTouchBytes);
      changes->statistics.push_back({reply.found()[i] == 2, row.count, row.time_s, row.step});
    }
  }

  bool Wants(uint64_t id) const {
    const uint64_t place = hashed_ ? BucketOf(Mix64(id)) : id;
    return id >= options_.first_id && id <= options_.last_id && place >= options_.first_place &&
           place < options_.limit_place;
  }

  void KeepWanted(RowChanges* changes) const {
    const bool all_ids = options_.first_id == 0 && options_.last_id == ~uint64_t{0};
    if (all_ids && changes->range.first >= options_.first_place &&
        changes->range.limit <= options_.limit_place) {
      return;
    }
    const size_t columns = changes->ids.empty() ? 0 : changes->rows.size() / changes->ids.size();
    size_t kept = 0;
    for (size_t i = 0; i < changes->ids.size(); ++i) {
      const uint64_t id = changes->ids[i];
      if (!Wants(id)) continue;
      changes->ids[kept] = id;
      if (!changes->statistics.empty()) changes->statistics[kept] = changes->statistics[i];
      std::memmove(changes->rows.data() + kept * columns, changes->rows.data() + i * columns,
                   columns * sizeof(float));
      ++kept;
    }
    std::erase_if(changes->deleted, [this](uint64_t id) { return !Wants(id); });
    changes->ids.resize(kept);
    if (!changes->statistics.empty()) changes->statistics.resize(kept);
    changes->rows.resize(kept * columns);
  }

  CopyChanges Take() {
    Ready ready = std::move(ready_.front());
    ready_.pop_front();
    changes_ready_ -= ready.listed ? 0 : 1;
    if (!others_.empty()) {  // they are told before anything else
      others_.pop_front();
      return std::move(ready.changes);
    }
    if (ready.changes.again) {
      std::erase_if(merged_, [&](const RangePosition& part) {
        return Overlap(part.range, ready.changes.range);
      });
    }
    for (auto& [index, shard] : shards_) {
      if (!Inside(shard.range, ready.changes.range)) continue;
      shard.told = ready.told;
      shard.told_ns = ready.changes.again ? 0 : std::max(shard.told_ns, ready.told_ns);
    }
    ready.changes.at = PositionOf(ready.changes.range, ready.told);
    return std::move(ready.changes);
  }

  const std::string table_;
  const std::unique_ptr<GrpcCheckpointCluster> cluster_;
  const FollowOptions options_;
  const Clock& clock_;
  Feeder feeder_;
  const bool every_slice_;  // also of ids alone
  grpc::CompletionQueue queue_;
  uint64_t lists_;     // the number of the last list
  uint32_t table_id_;  // 0: not known yet
  uint64_t table_number_ = 0;
  bool hashed_ = false;
  size_t turn_ = 0;
  std::map<uint32_t, Followed> shards_;
  std::map<OpenCall*, std::unique_ptr<OpenCall>> calls_;
  absl::Status refused_;  // for good, by a server's rules
  std::deque<Ready> ready_;
  size_t changes_ready_ = 0;           // of them, those that were not listed
  std::deque<RangePosition> others_;   // of tables that had the name before, not told yet
  std::vector<RangePosition> merged_;  // of shards that were merged, until the reader hears of it
  int64_t refreshed_ns_ = 0;
};

absl::StatusOr<std::unique_ptr<IdStream>> FollowBy(std::unique_ptr<GrpcCheckpointCluster> cluster,
                                                   const std::string& table,
                                                   const FollowOptions& options, uint32_t table_id,
                                                   CopyFeed feed, bool every_slice = false) {
  if (options.first_id > options.last_id) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_id is ", options.first_id, ", allowed: at most last_id, ", options.last_id));
  }
  if (options.first_place >= options.limit_place) {
    return absl::InvalidArgumentError(absl::StrCat("first_place is ", options.first_place,
                                                   ", allowed: less than limit_place, ",
                                                   options.limit_place));
  }
  if (options.with_statistics && !options.once) {
    return absl::InvalidArgumentError(
        "with_statistics is for scans (once); a stream tells values of rows alone");
  }
  auto stream = std::make_unique<TableStream>(table, std::move(cluster), options, table_id,
                                              std::move(feed), every_slice, Clock::Real());
  HOTBED_RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace

// Stable over restarts: positions are kept in files.
uint64_t NumberOfTable(const std::string& cluster, uint32_t table) {
  uint64_t number = Mix64(table);
  for (const char c : cluster) number = Mix64(number ^ static_cast<uint8_t>(c));
  return number;
}

absl::StatusOr<std::unique_ptr<ChangeStream>> Follow(const std::string& target,
                                                     const std::string& table,
                                                     const FollowOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(auto cluster, GrpcCheckpointCluster::Connect(target));
  return FollowBy(std::move(cluster), table, options, /*table_id=*/0, {});
}

absl::StatusOr<std::unique_ptr<CopyStream>> FollowAs(const std::string& coordinators,
                                                     const ClientIdentity& identity,
                                                     const v1::TableSpec& table,
                                                     const FollowOptions& options, CopyFeed feed) {
  if (table.column_slices() > 1) {
    return JoinSlices(ReachSlicedTable(coordinators, identity, table, options), table.dim(),
                      options.from, Clock::Real());
  }
  return FollowBy(std::make_unique<GrpcCheckpointCluster>(coordinators, identity), table.name(),
                  options, table.id(), std::move(feed));
}

absl::StatusOr<std::unique_ptr<IdStream>> FollowIdsAs(const std::string& coordinators,
                                                      const ClientIdentity& identity,
                                                      const v1::TableSpec& table,
                                                      const FollowOptions& options) {
  return FollowBy(std::make_unique<GrpcCheckpointCluster>(coordinators, identity), table.name(),
                  options, table.id(), {}, /*every_slice=*/true);
}

}  // namespace hotbed
