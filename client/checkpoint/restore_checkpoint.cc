// RestoreCheckpoint: creates tables that begin with saved rows, and waits until all shards serve.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/restore_rules.h"
#include "client/checkpoint/whole_table.h"
#include "client/client_impl.h"
#include "client/map/checkpoint_cluster.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "hotbed/checkpoint.h"
#include "places/place_finder.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr int64_t kRestoreWatchNs = 100 * kMillisecondNs;
constexpr uint32_t kReplicasIfUnsaid = 2;
constexpr int kPlacementsMax = 5;

// Trying again does not help.
bool IsFinal(absl::StatusCode code) {
  return code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kInvalidArgument ||
         code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kUnimplemented || code == absl::StatusCode::kPermissionDenied ||
         code == absl::StatusCode::kUnauthenticated;
}

class Restorer {
 public:
  Restorer(const RestoreOptions& options, CheckpointCluster* cluster, Place* place,
           const Clock* clock)
      : options_(options), cluster_(*cluster), place_(place), clock_(*clock) {}

  absl::StatusOr<RestoredCheckpoint> Restore() {
    HOTBED_ASSIGN_OR_RETURN(result_.path, FindCheckpoint(options_.checkpoint, place_));
    HOTBED_ASSIGN_OR_RETURN(manifest_, ReadManifest(result_.path, place_));
    HOTBED_RETURN_IF_ERROR(FoldersNeeded(result_.path, place_).status());
    HOTBED_ASSIGN_OR_RETURN(const v1::CreateTablesReply created, CreateTables());
    for (const v1::CreateTableReply& table : created.tables()) {
      tables_.push_back(table.spec());
      for (const v1::ShardRecord& shard : table.shards()) waiting_.insert(shard.shard());
    }
    shards_ = waiting_.size();
    if (options_.dry_run) return std::move(result_);
    const absl::Status served = AwaitShards();
    if (served.ok()) return std::move(result_);
    if (absl::IsCancelled(served)) return served;  // it goes on
    return absl::Status(served.code(), absl::StrCat(served.message(), ". ", TakeBack()));
  }

  // See AwaitRestored.
  absl::Status Await(const v1::TableSpec& table) {
    tables_.push_back(table);
    result_.tables.push_back({table.name(), 0, 0, 0});
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, cluster_.GetMap());
    for (const v1::ShardRecord& record : map.shards()) {
      if (ShardId::FromPacked(record.shard()).table == table.id()) waiting_.insert(record.shard());
    }
    shards_ = waiting_.size();
    const absl::Status served = AwaitShards();
    if (served.ok() || absl::IsCancelled(served)) return served;
    // Trainers may use the table since.
    return absl::Status(served.code(),
                        absl::StrCat(served.message(), ". Call again to wait on, or drop table ",
                                     table.name(), " and begin again"));
  }

 private:
  // A server may end between the map that names it and the request that places shards there. They
  // are placed once more then, by a map without it.
  absl::StatusOr<v1::CreateTablesReply> CreateTables() {
    for (int tries = 1;; ++tries) {
      HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, cluster_.GetMap());
      HOTBED_RETURN_IF_ERROR(ChooseSessions(map));
      HOTBED_ASSIGN_OR_RETURN(const v1::CreateTablesRequest request, Request(map));
      absl::StatusOr<v1::CreateTablesReply> created = cluster_.CreateTables(request);
      if (!absl::IsFailedPrecondition(created.status()) || tries == kPlacementsMax) return created;
      HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap now, cluster_.GetMap());
      if (UsableServers(now) == UsableServers(map)) return created;
    }
  }

  static std::set<uint64_t> UsableServers(const v1::ClusterMap& map) {
    std::set<uint64_t> servers;
    for (const v1::ServerInfo& server : map.servers()) {
      if (server.live() && !server.draining()) servers.insert(server.server());
    }
    return servers;
  }

  absl::Status ChooseSessions(const v1::ClusterMap& map) {
    const bool known = map.cluster_id() == manifest_.cluster_id();
    result_.sessions_continue = known && options_.sessions != RestoredSessions::kAnew;
    if (known || options_.sessions != RestoredSessions::kContinue) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the sessions of ", result_.path, " are those of cluster ", manifest_.cluster_id(),
        ", and cannot go on in cluster ", map.cluster_id(), ". Restore with --sessions=anew"));
  }

  absl::StatusOr<v1::CreateTablesRequest> Request(const v1::ClusterMap& map) {
    std::vector<RestoreOptions::TableName> names = options_.tables;
    if (names.empty()) {
      for (const v1::CheckpointTable& table : manifest_.tables()) {
        names.push_back({table.spec().name(), ""});
      }
    }
    if (names.empty()) {
      return absl::NotFoundError(absl::StrCat(result_.path, " holds no tables"));
    }
    placed_.clear();
    result_.tables.clear();
    bytes_ = 0;
    v1::CreateTablesRequest request;
    request.set_dry_run(options_.dry_run);
    for (const RestoreOptions::TableName& name : names) {
      HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const saved,
                              FindTable(manifest_, name.name));
      HOTBED_ASSIGN_OR_RETURN(const TableSpec spec,
                              SpecOf(*saved, name.as.empty() ? name.name : name.as));
      v1::NewTable& table = *request.add_tables();
      *table.mutable_spec() = ToProto(spec);
      if (options_.shards != 0) {
        table.set_shards(options_.shards);
      } else {
        PlaceShards(*saved, map, &table);
      }
      result_.tables.push_back({spec.name, 0, RowsOf(*saved), BytesOf(*saved)});
      bytes_ += BytesOf(*saved);
    }
    return request;
  }

  absl::StatusOr<TableSpec> SpecOf(const v1::CheckpointTable& table,
                                   const std::string& name) const {
    HOTBED_ASSIGN_OR_RETURN(const TableSpec saved, FromProto(table.spec()));
    TableSpec spec = saved;
    spec.id = 0;
    spec.name = name;
    if (name != saved.name) spec.composition = Composition();  // a part under another name is plain
    // Pushes that waited for the end of their step are not saved: they must be taken again.
    const bool sessions = result_.sessions_continue && !IsSynchronous(saved);
    spec.restored_from = {result_.path, saved.name, sessions};
    // Numbers of frequency blocks' index are exact in fp32 alone.
    const bool index =
        saved.composition.form == ComposeForm::kFrequency && saved.composition.part == 0;
    if (options_.weight_type.has_value() && !index) spec.weight_type = *options_.weight_type;
    if (options_.durability.has_value()) spec.durability = *options_.durability;
    if (spec.durability != Durability::kReplicated) {
      spec.replicas = 1;
    } else if (options_.replicas != 0) {
      spec.replicas = options_.replicas;
    } else if (spec.replicas < kReplicasIfUnsaid) {
      spec.replicas = kReplicasIfUnsaid;
    }
    HOTBED_RETURN_IF_ERROR(ValidateTableSpec(spec));
    HOTBED_RETURN_IF_ERROR(CheckRestorable(saved, spec));
    return spec;
  }

  // The shards that were saved, each on the server that has the fewest bytes of them so far.
  void PlaceShards(const v1::CheckpointTable& saved, const v1::ClusterMap& map,
                   v1::NewTable* table) {
    for (const uint64_t server : UsableServers(map)) placed_.try_emplace(server, 0);
    if (placed_.empty()) return;  // the coordinator says so
    for (const v1::CheckpointShard& shard : saved.shards()) {
      const auto least =
          std::min_element(placed_.begin(), placed_.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      least->second += shard.bytes();
      v1::PlacedShard& placed = *table->add_placed();
      placed.set_range_first(shard.range_first());
      placed.set_range_limit(shard.range_limit());
      placed.set_column_first(shard.column_first());
      placed.set_column_limit(shard.column_limit());
      placed.add_servers(least->first);
    }
  }

  absl::Status AwaitShards() {
    const int64_t begun_ns = clock_.NowNs();
    int64_t progress_ns = begun_ns;
    std::string trouble = "no server has said why";
    for (;;) {
      HOTBED_ASSIGN_OR_RETURN(const bool news, LookAtMap(begun_ns));
      HOTBED_ASSIGN_OR_RETURN(const bool bytes, LookAtServers(&trouble));
      TellProgress();
      if (waiting_.empty()) return absl::OkStatus();
      if (options_.stop && options_.stop()) {
        return absl::CancelledError(
            "the wait was broken off; the servers go on, until the new tables are dropped");
      }
      const int64_t now_ns = clock_.NowNs();
      if (news || bytes) progress_ns = now_ns;
      if (now_ns - progress_ns > absl::ToInt64Nanoseconds(options_.patience)) {
        return absl::UnavailableError(absl::StrCat(
            waiting_.size(), " of ", shards_, " shards do not serve, ",
            ShardId::FromPacked(*waiting_.begin()).ToString(), " the first, and nothing came in ",
            absl::FormatDuration(options_.patience), ": ", trouble));
      }
      clock_.SleepNs(kRestoreWatchNs);
    }
  }

  // Whether more shards serve than before.
  absl::StatusOr<bool> LookAtMap(int64_t begun_ns) {
    const absl::StatusOr<v1::ClusterMap> map = cluster_.GetMap();
    if (!map.ok()) return IsFinal(map.status().code()) ? map.status() : absl::StatusOr<bool>(false);
    addresses_.clear();
    for (const v1::ServerInfo& server : map->servers()) {
      if (server.live()) addresses_.push_back(server.address());
    }
    const size_t before = waiting_.size();
    size_t found = 0;
    for (const v1::ShardRecord& record : map->shards()) {
      const uint32_t id = ShardId::FromPacked(record.shard()).table;
      for (size_t i = 0; i < tables_.size(); ++i) {
        if (tables_[i].id() != id) continue;
        ++found;
        if (record.active() && waiting_.erase(record.shard()) > 0) ++result_.tables[i].shards;
      }
    }
    if (found < shards_) return absl::AbortedError("the new tables were dropped");
    if (waiting_.size() < before && before == shards_) {
      result_.first_shard_seconds = static_cast<double>(clock_.NowNs() - begun_ns) * 1e-9;
    }
    return waiting_.size() < before;
  }

  // Whether more was read than before; an error that does not pass.
  absl::StatusOr<bool> LookAtServers(std::string* trouble) {
    bool news = false;
    for (const std::string& address : addresses_) {
      for (const v1::TableSpec& table : tables_) {
        v1::WatchRestoreRequest request;
        request.set_table(table.id());
        const auto reply = cluster_.WatchRestore(address, request);
        if (!reply.ok()) {
          *trouble = std::string(reply.status().message());
          continue;
        }
        uint64_t& read = read_[{address, table.id()}];
        news = news || reply->bytes_read() > read;
        read = std::max(read, reply->bytes_read());
        for (const v1::RestoringShard& shard : reply->shards()) {
          const auto code = static_cast<absl::StatusCode>(shard.code());
          if (code == absl::StatusCode::kOk) continue;
          *trouble =
              absl::StrCat(ShardId::FromPacked(shard.shard()).ToString(), ": ", shard.error());
          if (IsFinal(code)) return absl::Status(code, *trouble);
        }
      }
    }
    return news;
  }

  void TellProgress() const {
    if (!options_.progress) return;
    CheckpointProgress progress;
    progress.shards = shards_;
    progress.shards_done = shards_ - waiting_.size();
    progress.bytes = bytes_;
    for (const auto& [of, bytes] : read_) progress.bytes_done += bytes;
    progress.bytes_done = waiting_.empty() ? bytes_ : std::min(progress.bytes_done, progress.bytes);
    options_.progress(progress);
  }

  std::string TakeBack() {
    for (const v1::TableSpec& table : tables_) {
      const std::string& composed = table.composition().table();
      const absl::Status dropped =
          cluster_.DropTable(composed.empty() ? table.name() : composed);  // with all of its parts
      if (dropped.ok() || absl::IsNotFound(dropped)) continue;
      return absl::StrCat("Drop table ", table.name(),
                          ", which could not be dropped: ", dropped.message());
    }
    return "The new tables were dropped again";
  }

  const RestoreOptions& options_;
  CheckpointCluster& cluster_;
  Place* const place_;  // not for Await
  const Clock& clock_;
  v1::CheckpointManifest manifest_;
  RestoredCheckpoint result_;
  std::vector<v1::TableSpec> tables_;    // new, in the order of result_.tables
  std::map<uint64_t, uint64_t> placed_;  // server -> bytes
  std::set<uint64_t> waiting_;           // shards, packed, that do not serve yet
  std::vector<std::string> addresses_;   // of live servers
  std::map<std::pair<std::string, uint32_t>, uint64_t> read_;
  size_t shards_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<RestoredCheckpoint> Restore(const RestoreOptions& options,
                                           CheckpointCluster* cluster) {
  HOTBED_ASSIGN_OR_RETURN(Place* const place, cluster->PlaceOf(options.checkpoint));
  RestoreOptions canonical = options;
  HOTBED_ASSIGN_OR_RETURN(canonical.checkpoint, PlacePath(options.checkpoint));
  return Restorer(canonical, cluster, place, Clock::Real()).Restore();
}

absl::Status AwaitRestored(const RestoreOptions& options, const v1::TableSpec& table,
                           CheckpointCluster* cluster) {
  return Restorer(options, cluster, nullptr, Clock::Real()).Await(table);
}

absl::StatusOr<RestoredCheckpoint> RestoreCheckpoint(const std::string& target,
                                                     const RestoreOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(const auto cluster, GrpcCheckpointCluster::Connect(target));
  return Restore(options, cluster.get());
}

absl::StatusOr<RestoredCheckpoint> RestoreCheckpoint(Client* client,
                                                     const RestoreOptions& options) {
  const auto cluster = static_cast<ClientImpl*>(client)->WholeTables();
  return Restore(options, cluster.get());
}

}  // namespace hotbed
