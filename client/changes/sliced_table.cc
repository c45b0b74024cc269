// SlicedTable over gRPC: one call to each server, all at the same time.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/changes/joined_stream.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::Duration kShardsTimeout = absl::Seconds(10);
constexpr absl::Duration kMapAgainTimeout = absl::Seconds(1);
constexpr int64_t kReadDeadlineNs = kSecondNs;
constexpr size_t kShardsPerRead = 512;

class GrpcSlicedTable final : public SlicedTable {
 public:
  GrpcSlicedTable(const std::string& coordinators, const ClientIdentity& identity,
                  const v1::TableSpec& table, FollowOptions options)
      : coordinators_(coordinators),
        identity_(identity),
        spec_(table),
        options_(std::move(options)),
        cluster_(coordinators, identity) {
    options_.with_rows = false;
  }

  absl::StatusOr<std::vector<SliceShard>> Shards() override {
    HOTBED_RETURN_IF_ERROR(Refresh(kShardsTimeout));
    return shards_;
  }

  uint64_t number() const override { return number_; }

  absl::StatusOr<std::unique_ptr<IdStream>> FollowIds(const ChangePositions& from) override {
    FollowOptions options = options_;
    options.from = from;
    return FollowIdsAs(coordinators_, identity_, spec_, options);
  }

  absl::StatusOr<std::vector<Found>> Read(absl::Span<const Wanted> wanted) override {
    if (std::exchange(failed_, false)) {
      const absl::Status refreshed = Refresh(kMapAgainTimeout);
      if (absl::IsNotFound(refreshed)) return refreshed;
    }
    std::map<std::string, std::vector<size_t>> by_address;
    for (size_t i = 0; i < wanted.size(); ++i) {
      by_address[addresses_[wanted[i].from.shard]].push_back(i);
    }
    std::vector<std::unique_ptr<Call>> calls;
    grpc::CompletionQueue queue;
    for (const auto& [address, indexes] : by_address) {
      for (size_t first = 0; first < indexes.size(); first += kShardsPerRead) {
        const size_t limit = std::min(indexes.size(), first + kShardsPerRead);
        auto call = std::make_unique<Call>();
        call->indexes.assign(indexes.begin() + first, indexes.begin() + limit);
        Begin(address, wanted, call.get(), &queue);
        calls.push_back(std::move(call));
      }
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);  // each has a deadline
    }
    queue.Shutdown();
    std::vector<Found> found(wanted.size());
    for (const auto& call : calls) HOTBED_RETURN_IF_ERROR(Take(*call, wanted, &found));
    return found;
  }

  void LookAgain() override { failed_ = true; }

 private:
  struct Call {
    std::vector<size_t> indexes;  // of what is wanted
    grpc::ClientContext context;
    grpc::Status status;
    v1::ReadRowsReply reply;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ReadRowsReply>> reader;
  };

  absl::Status Refresh(absl::Duration timeout) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, cluster_.GetMap(timeout));
    bool there = false;
    for (const v1::TableSpec& spec : map.tables()) {
      there |= spec.id() == spec_.id() && spec.name() == spec_.name();
    }
    if (!there) return absl::NotFoundError(absl::StrCat("table ", spec_.name(), " was dropped"));
    std::map<uint64_t, std::string> servers;
    for (const v1::ServerInfo& server : map.servers()) servers[server.server()] = server.address();
    shards_.clear();
    for (const v1::ShardRecord& record : map.shards()) {
      const ShardId id = ShardId::FromPacked(record.shard());
      const bool wanted = id.table == spec_.id() && record.range_first() < options_.limit_place &&
                          record.range_limit() > options_.first_place;
      if (!wanted) continue;
      shards_.push_back({id.index,
                         {record.range_first(), record.range_limit(), record.column_first(),
                          record.column_limit()}});
      addresses_[id.index] = servers[record.primary().server()];
    }
    number_ = NumberOfTable(map.cluster_id(), spec_.id());
    return absl::OkStatus();
  }

  void Begin(const std::string& address, absl::Span<const Wanted> wanted, Call* call,
             grpc::CompletionQueue* queue) {
    call->context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                            gpr_time_from_nanos(kReadDeadlineNs, GPR_TIMESPAN)));
    v1::ReadRowsRequest request;
    for (const size_t index : call->indexes) {
      const Wanted& one = wanted[index];
      v1::WantedRows& rows = *request.add_shards();
      rows.set_shard(ShardId{spec_.id(), one.from.shard}.packed());
      rows.set_range_first(one.from.range.first);
      rows.set_range_limit(one.from.range.limit);
      rows.set_ids(one.ids.data(), one.ids.size() * sizeof(uint64_t));
    }
    call->reader = cluster_.ChangesAt(address)->AsyncReadRows(&call->context, request, queue);
    call->reader->Finish(&call->reply, &call->status, call);
  }

  absl::Status Take(const Call& call, absl::Span<const Wanted> wanted, std::vector<Found>* found) {
    const auto code = static_cast<absl::StatusCode>(call.status.error_code());
    if (code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kUnauthenticated ||
        code == absl::StatusCode::kUnimplemented) {
      return absl::Status(code, call.status.error_message());
    }
    // A server that has much to do is the primary still.
    failed_ |= !call.status.ok() && code != absl::StatusCode::kResourceExhausted;
    const auto count = static_cast<size_t>(call.reply.shards_size());
    if (!call.status.ok() || count != call.indexes.size()) return absl::OkStatus();
    for (size_t i = 0; i < count; ++i) {
      const v1::FoundRows& said = call.reply.shards(static_cast<int>(i));
      const Wanted& one = wanted[call.indexes[i]];
      const size_t columns = one.from.range.column_limit - one.from.range.column_first;
      failed_ |= said.elsewhere();
      if (said.elsewhere() || said.found().size() != one.ids.size() ||
          said.rows().size() != one.ids.size() * columns * sizeof(float)) {
        continue;
      }
      Found& rows = (*found)[call.indexes[i]];
      rows.answered = true;
      rows.at = said.at();
      rows.found = said.found();
      rows.rows.resize(one.ids.size() * columns);
      if (!one.ids.empty()) std::memcpy(rows.rows.data(), said.rows().data(), said.rows().size());
    }
    return absl::OkStatus();
  }

  const std::string coordinators_;
  const ClientIdentity identity_;
  const v1::TableSpec spec_;
  FollowOptions options_;
  GrpcCheckpointCluster cluster_;
  uint64_t number_ = 0;
  std::vector<SliceShard> shards_;
  std::map<uint32_t, std::string> addresses_;  // of the primaries, by shard
  bool failed_ = false;                        // some primary was not reached: the map is old
};

}  // namespace

std::unique_ptr<SlicedTable> ReachSlicedTable(const std::string& coordinators,
                                              const ClientIdentity& identity,
                                              const v1::TableSpec& table,
                                              const FollowOptions& options) {
  return std::make_unique<GrpcSlicedTable>(coordinators, identity, table, options);
}

}  // namespace hotbed
