// Follow: each shard is listed once, and then asked for what has changed; the rows are pulled.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/checkpoint/checkpoint_cluster.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "hotbed/changes.h"

namespace hotbed {
namespace {

constexpr int64_t kRefreshNs = kSecondNs / 5;  // between two tries for a shard without a server
constexpr size_t kListedAtOnce = 2;            // shards

std::vector<uint64_t> IdsOf(const std::string& bytes) {
  std::vector<uint64_t> ids(bytes.size() / sizeof(uint64_t));
  std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(uint64_t));
  return ids;
}

// Two streams must not take each other's lists.
uint64_t RandomNumber() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

class TableStream : public ChangeStream {
 public:
  TableStream(Client* client, const Table* table, std::unique_ptr<CheckpointCluster> cluster,
              const FollowOptions& options, const Clock* clock)
      : client_(*client),
        table_(*table),
        cluster_(std::move(cluster)),
        options_(options),
        clock_(*clock),
        lists_(RandomNumber()) {}

  // Frees the servers' lists at once.
  ~TableStream() override {
    for (const auto& [index, shard] : shards_) {
      if (shard.state != State::kListing) continue;
      v1::ListRowsRequest request;
      request.set_list(shard.list);
      request.set_shard(Packed(index));
      request.set_end(true);
      (void)cluster_->ListRows(shard.address, request);
    }
  }

  absl::Status Start() {
    HOTBED_RETURN_IF_ERROR(Refresh());
    for (auto& [index, shard] : shards_) {
      const auto from = options_.from.find(index);
      if (options_.once || from == options_.from.end()) continue;
      shard.told = shard.read = from->second;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<RowChanges>> Next(absl::Duration wait) override {
    const int64_t until_ns = clock_.NowNs() + absl::ToInt64Nanoseconds(wait);
    for (;;) {
      if (!ready_.empty()) return Take();
      if (ended()) return std::nullopt;
      HOTBED_RETURN_IF_ERROR(ListSome());
      if (!options_.once) HOTBED_RETURN_IF_ERROR(AskForChanges());
      HOTBED_RETURN_IF_ERROR(CheckPatience());
      if (!ready_.empty()) return Take();
      const int64_t now_ns = clock_.NowNs();
      if (now_ns >= until_ns) return std::nullopt;
      clock_.SleepNs(std::min(until_ns - now_ns, absl::ToInt64Nanoseconds(options_.poll)));
    }
  }

  ChangePositions Positions() const override {
    ChangePositions positions;
    for (const auto& [index, shard] : shards_) {
      if (shard.told != 0) positions[index] = shard.told;
    }
    return positions;
  }

  bool ended() const override {
    return options_.once && ready_.empty() &&
           std::all_of(shards_.begin(), shards_.end(),
                       [](const auto& one) { return one.second.state == State::kListed; });
  }

 private:
  enum class State {
    kNew,     // its server does not keep changes yet
    kToList,  // changes are kept; all rows come first
    kListing,
    kListed,  // `once` alone
    kFollowing,
  };
  struct Followed {
    State state = State::kNew;
    std::string address;
    uint64_t told = 0;  // to the caller
    uint64_t read = 0;  // asked for, and in ready_ or told
    uint64_t list = 0;
    int64_t failing_since_ns = 0;  // 0: it is not
    int64_t not_before_ns = 0;
    std::string error;
  };

  absl::Status Refresh() {
    refreshed_ns_ = clock_.NowNs();
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, cluster_->GetMap());
    std::map<uint64_t, std::string> addresses;
    for (const v1::ServerInfo& server : map.servers()) {
      addresses[server.server()] = server.address();
    }
    uint32_t table = 0;
    bool hashed = false;
    for (const v1::TableSpec& spec : map.tables()) {
      if (spec.name() != table_.name()) continue;
      table = spec.id();
      hashed = spec.hashed();
    }
    if (table == 0 || (table_id_ != 0 && table != table_id_)) {
      return absl::NotFoundError(absl::StrCat("table \"", table_.name(), "\" was dropped"));
    }
    table_id_ = table;
    std::map<uint32_t, Followed> shards;
    for (const v1::ShardRecord& record : map.shards()) {
      const ShardId id = ShardId::FromPacked(record.shard());
      if (id.table != table || !MayHaveRows(record, hashed)) continue;
      const auto known = shards_.find(id.index);
      Followed& shard = shards[id.index];
      if (known != shards_.end()) shard = known->second;
      shard.address = addresses[record.primary().server()];
    }
    shards_ = std::move(shards);  // those that were cut are gone
    return absl::OkStatus();
  }

  // Every column slice has the same rows, so the first one's list is that of the table.
  bool MayHaveRows(const v1::ShardRecord& record, bool hashed) const {
    if (options_.once && record.column_first() != 0) return false;
    return hashed ||
           (record.range_first() <= options_.last_id && record.range_limit() > options_.first_id);
  }

  uint64_t Packed(uint32_t index) const { return ShardId{table_id_, index}.packed(); }

  std::optional<RowChanges> Take() {
    RowChanges changes = std::move(ready_.front());
    ready_.pop_front();
    const auto shard = shards_.find(changes.shard);  // it may have been cut meanwhile
    if (shard != shards_.end() && changes.lsn != 0) shard->second.told = changes.lsn;
    return changes;
  }

  // Another server has the shard by now, or will have it.
  void Fail(Followed* shard, const absl::Status& error) {
    const int64_t now_ns = clock_.NowNs();
    if (shard->failing_since_ns == 0) shard->failing_since_ns = now_ns;
    shard->not_before_ns = now_ns + kRefreshNs;
    shard->error = std::string(error.message());
    shard->state = options_.once ? State::kToList : State::kNew;
  }

  absl::Status CheckPatience() {
    bool any = false;
    for (const auto& [index, shard] : shards_) {
      if (shard.failing_since_ns == 0) continue;
      any = true;
      if (clock_.NowNs() - shard.failing_since_ns < absl::ToInt64Nanoseconds(options_.patience)) {
        continue;
      }
      return absl::UnavailableError(
          absl::StrCat(ShardId{table_id_, index}.ToString(), " was not reached within ",
                       absl::FormatDuration(options_.patience), ": ", shard.error));
    }
    if (!any || clock_.NowNs() - refreshed_ns_ < kRefreshNs) return absl::OkStatus();
    const absl::Status refreshed = Refresh();
    return absl::IsNotFound(refreshed) ? refreshed : absl::OkStatus();
  }

  // --- all rows

  absl::Status ListSome() {
    size_t listing = 0;
    for (auto& [index, shard] : shards_) {
      if (clock_.NowNs() < shard.not_before_ns) continue;
      if (options_.once && shard.state == State::kNew) shard.state = State::kToList;
      if (shard.state == State::kToList) {
        shard.state = State::kListing;
        shard.list = ++lists_;
      }
      if (shard.state != State::kListing) continue;
      HOTBED_RETURN_IF_ERROR(ListOne(index, &shard));
      if (++listing == kListedAtOnce) break;
    }
    return absl::OkStatus();
  }

  absl::Status ListOne(uint32_t index, Followed* shard) {
    v1::ListRowsRequest request;
    request.set_list(shard->list);
    request.set_shard(Packed(index));
    const absl::StatusOr<v1::ListRowsReply> reply = cluster_->ListRows(shard->address, request);
    if (!reply.ok()) {
      Fail(shard, reply.status());
      return absl::OkStatus();
    }
    shard->failing_since_ns = 0;
    // What follows the list is above its LSN.
    const uint64_t lsn = reply->ended() ? reply->lsn() : 0;
    if (const absl::Status added = AddRows(index, IdsOf(reply->ids()), lsn); !added.ok()) {
      shard->state = State::kToList;  // the server has given these ids away
      return added;
    }
    if (!reply->ended()) return absl::OkStatus();
    shard->read = lsn;
    shard->state = options_.once ? State::kListed : State::kFollowing;
    return absl::OkStatus();
  }

  // --- changes

  absl::Status AskForChanges() {
    std::map<std::string, v1::ReadChangesRequest> requests;
    for (const auto& [index, shard] : shards_) {
      if (clock_.NowNs() < shard.not_before_ns) continue;
      v1::ReadChangesRequest& request = requests[shard.address];
      request.set_ids_max(options_.rows_max);
      v1::ChangesAbove& above = *request.add_shards();
      above.set_shard(Packed(index));
      const bool follows = shard.state == State::kNew || shard.state == State::kFollowing;
      above.set_lsn(follows ? shard.read : 0);
      above.set_only_keep(!follows);
    }
    for (const auto& [address, request] : requests) {
      const absl::StatusOr<v1::ReadChangesReply> reply = cluster_->ReadChanges(address, request);
      for (int i = 0; i < request.shards_size(); ++i) {
        const uint32_t index = ShardId::FromPacked(request.shards(i).shard()).index;
        if (reply.ok() && i < reply->shards_size()) {
          HOTBED_RETURN_IF_ERROR(TakeChanges(index, request.shards(i), reply->shards(i)));
        } else {
          Fail(&shards_[index], reply.status());
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status TakeChanges(uint32_t index, const v1::ChangesAbove& asked,
                           const v1::ShardChanges& said) {
    Followed& shard = shards_[index];
    if (said.elsewhere()) {
      Fail(&shard, absl::UnavailableError("its primary is another server"));
      return absl::OkStatus();
    }
    shard.failing_since_ns = 0;
    if (said.opening() || asked.only_keep()) return absl::OkStatus();
    if (said.known_above() > asked.lsn()) {  // behind, or new
      shard.state = State::kToList;
      return absl::OkStatus();
    }
    shard.state = State::kFollowing;
    if (said.through() <= shard.read) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(AddRows(index, IdsOf(said.ids()), said.through()));
    shard.read = said.through();
    return absl::OkStatus();
  }

  // The last part has the LSN.
  absl::Status AddRows(uint32_t index, std::vector<uint64_t> ids, uint64_t lsn) {
    std::erase_if(ids,
                  [this](uint64_t id) { return id < options_.first_id || id > options_.last_id; });
    std::deque<RowChanges> added;
    for (size_t first = 0; first < ids.size(); first += options_.rows_max) {
      RowChanges& part = added.emplace_back();
      part.shard = index;
      const size_t limit = std::min(ids.size(), first + options_.rows_max);
      part.ids.assign(ids.begin() + first, ids.begin() + limit);
      if (!options_.with_rows) continue;
      part.rows.resize(part.ids.size() * table_.dim());
      PullFeature feature;
      feature.table = &table_;
      feature.ids = part.ids;
      feature.rows = part.rows.data();
      HOTBED_RETURN_IF_ERROR(client_.Pull({&feature, 1}, {.read_from = ReadFrom::kPrimary}).Wait());
    }
    if (added.empty() && lsn != 0) added.push_back({index, 0, {}, {}});
    if (!added.empty()) added.back().lsn = lsn;
    for (RowChanges& part : added) ready_.push_back(std::move(part));
    return absl::OkStatus();
  }

  Client& client_;
  const Table& table_;
  const std::unique_ptr<CheckpointCluster> cluster_;
  const FollowOptions options_;
  const Clock& clock_;
  uint64_t lists_;  // the number of the last list
  uint32_t table_id_ = 0;
  std::map<uint32_t, Followed> shards_;
  std::deque<RowChanges> ready_;
  int64_t refreshed_ns_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChangeStream>> Follow(Client* client, const std::string& target,
                                                     const std::string& table,
                                                     const FollowOptions& options) {
  if (options.first_id > options.last_id) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_id is ", options.first_id, ", allowed: at most last_id, ", options.last_id));
  }
  if (options.rows_max < 1 || options.rows_max > 65536) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows_max is ", options.rows_max, ", allowed: 1..65536"));
  }
  HOTBED_ASSIGN_OR_RETURN(const Table* const followed, client->OpenTable(table));
  HOTBED_ASSIGN_OR_RETURN(auto cluster, CheckpointCluster::Connect(target));
  auto stream =
      std::make_unique<TableStream>(client, followed, std::move(cluster), options, Clock::Real());
  HOTBED_RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace hotbed
