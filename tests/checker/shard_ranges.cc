#include "tests/checker/shard_ranges.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "leader/leader_stub.h"
#include "proto/control.grpc.pb.h"

namespace hotbed::checker {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kMapBytesMax = 64 << 20;

}  // namespace

absl::StatusOr<std::vector<ShardRange>> ReadShardRanges(const std::string& coordinator,
                                                        const std::string& table) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMapBytesMax);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  LeaderStub leader(coordinator, IdentityOfEnvironment(), args);
  v1::ClusterMap map;
  const grpc::Status status =
      leader.Call(kTimeout, /*patient=*/true,
                  [&map](v1::Coordinator::Stub* stub, grpc::ClientContext* context) {
                    return stub->GetClusterMap(context, v1::GetClusterMapRequest(), &map);
                  });
  if (!status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("map of ", coordinator, ": ", status.error_message()));
  }
  uint32_t id = 0;
  for (const v1::TableSpec& spec : map.tables()) {
    if (spec.name() == table) id = spec.id();
  }
  if (id == 0) return absl::NotFoundError(absl::StrCat("no table \"", table, "\""));
  std::vector<ShardRange> ranges;
  for (const v1::ShardRecord& record : map.shards()) {
    if (ShardId::FromPacked(record.shard()).table != id || record.column_first() != 0) continue;
    ranges.push_back(
        {record.range_first(), record.range_limit(), record.column_first(), record.column_limit()});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ShardRange& a, const ShardRange& b) { return a.first < b.first; });
  return ranges;
}

}  // namespace hotbed::checker
