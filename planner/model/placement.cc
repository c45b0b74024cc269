#include "planner/model/placement.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/model/refine.h"
#include "planner/model/saturated.h"

namespace hotbed {
namespace {

uint64_t Units(const TableSpec& spec) { return spec.hashed ? kHashBuckets : spec.rows; }

// For all rows, the columns of `range`.
absl::uint128 WeightBytes(const TableSpec& spec, ColumnRange range) {
  return absl::uint128(spec.rows) * BytesPerWeight(spec.weight_type) * range.columns();
}

absl::uint128 StoredBytes(const TableSpec& spec, ColumnRange range) {
  return WeightBytes(spec, range) +
         absl::uint128(spec.rows) * StateBytes(spec.optimizer, range.columns());
}

absl::uint128 TotalBytes(const TableSpec& spec) {
  return absl::uint128(spec.rows) * (spec.weight_bytes_per_row() + spec.state_bytes_per_row());
}

// The share of `total`, spread over the units of the table, that falls to `range`; rounded up.
uint64_t ShareOf(const TableSpec& spec, const ShardRange& range, absl::uint128 total) {
  const uint64_t units = Units(spec);
  if (units == 0) return 0;
  // A bounded table's total is a whole number per row, so divide first: the product could exceed
  // 128 bits.
  if (!spec.hashed) return Saturated(total / units * (range.limit - range.first));
  return Saturated((total * (range.limit - range.first) + units - 1) / units);
}

// Ranges of units, which all slices share.
uint64_t RangeCount(const TableSpec& spec, uint32_t shards_min) {
  if (spec.vocabulary != 0) return 1;  // it gives its numbers in one order
  const uint64_t units = Units(spec);
  const uint64_t slices = spec.column_slices;
  const absl::uint128 widest = StoredBytes(spec, SliceColumns(spec.dim, spec.column_slices, 0));
  const auto shared = [&](uint64_t shards) { return (shards + slices - 1) / slices; };
  uint64_t count = std::max<uint64_t>(1, shared(shards_min));
  if (TotalBytes(spec) > kSmallTableBytes || (spec.hashed && spec.rows == 0)) {
    count = std::max(count, shared(kShardsPerTableMin));
  }
  if (widest > kShardBytesMax) {
    // Whole units, so that no shard is above the limit by its rounding.
    const absl::uint128 units_a_shard =
        std::max<absl::uint128>(1, absl::uint128(kShardBytesMax) * units / widest);
    count = std::max(count, Saturated((units + units_a_shard - 1) / units_a_shard));
  }
  return std::min({count, units, kShardsPerTableMax / slices});
}

absl::Status CheckShardsMin(const TableSpec& spec, uint32_t shards_min) {
  const uint64_t units = Units(spec);
  const uint32_t slices = spec.column_slices;
  const uint64_t ranges = (uint64_t{shards_min} + slices - 1) / slices;
  const std::string of_slices =
      slices == 1 ? "" : absl::StrCat(" in ", slices, " column slices of as many shards");
  if (spec.vocabulary != 0 && shards_min > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", spec.name, "\": ", shards_min,
                     " shards asked for, allowed: 1 for a vocabulary, which gives its numbers in "
                     "one order"));
  }
  if (ranges * slices > kShardsPerTableMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", spec.name, "\": ", shards_min, " shards asked for", of_slices,
                     ", the limit is ", kShardsPerTableMax, " a table"));
  }
  if (units == 0 || ranges > units) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", spec.name, "\": ", spec.rows, " rows cannot be cut into ",
                     std::max<uint32_t>(1, shards_min), " shards of at least one row", of_slices));
  }
  return absl::OkStatus();
}

// Chooses the backups of a plan whose primaries are placed (see the header).
class BackupPlacement {
 public:
  explicit BackupPlacement(const std::vector<ServerCandidate>& servers) {
    std::map<std::string, uint32_t> domains;
    for (const ServerCandidate& server : servers) {
      // A server without a domain is its own: no name that was given looks like this one.
      const std::string domain =
          server.failure_domain.empty() ? absl::StrCat("\n", server.server) : server.failure_domain;
      const uint32_t number = static_cast<uint32_t>(domains.size());
      domains_.push_back(domains.emplace(domain, number).first->second);
      index_.emplace(server.server, static_cast<uint32_t>(bytes_.size()));
      ids_.push_back(server.server);
      bytes_.push_back(server.bytes);
    }
    domain_count_ = static_cast<uint32_t>(domains.size());
  }

  uint32_t domains() const { return domain_count_; }

  // Needs at least `replicas` domains.
  void Place(uint32_t replicas, std::vector<PlannedShard>& shards) {
    std::vector<std::pair<uint64_t, PlannedShard*>> order;  // by place among its primary's
    std::map<ServerId, uint64_t> primaries;
    for (PlannedShard& shard : shards) {
      const ServerId primary = shard.assignments[0].server;
      Add(index_.at(primary), shard);
      order.emplace_back(primaries[primary]++, &shard);
    }
    std::sort(order.begin(), order.end());
    for (auto& [place, at] : order) {
      PlannedShard& shard = *at;
      std::vector<uint32_t> holders = {index_.at(shard.assignments[0].server)};
      std::vector<uint32_t>& pairs = pairs_[holders[0]];
      pairs.resize(ids_.size());
      while (holders.size() < replicas) {
        const uint32_t next = Best(holders, pairs);
        Add(next, shard);
        ++pairs[next];
        holders.push_back(next);
        shard.assignments.push_back({ids_[next], Role::kBackup});
      }
    }
  }

 private:
  void Add(uint32_t server, const PlannedShard& shard) {
    bytes_[server] = Saturated(absl::uint128(bytes_[server]) + shard.bytes);
  }

  uint32_t Best(const std::vector<uint32_t>& holders, const std::vector<uint32_t>& pairs) const {
    const uint32_t none = static_cast<uint32_t>(ids_.size());
    uint32_t best = none;
    const auto key = [&](uint32_t s) { return std::tuple(bytes_[s], pairs[s], ids_[s]); };
    for (uint32_t s = 0; s < none; ++s) {
      const bool shares = std::any_of(holders.begin(), holders.end(),
                                      [&](uint32_t h) { return domains_[h] == domains_[s]; });
      if (!shares && (best == none || key(s) < key(best))) best = s;
    }
    return best;
  }

  std::vector<ServerId> ids_;
  std::vector<uint32_t> domains_;
  std::vector<uint64_t> bytes_;
  std::map<ServerId, uint32_t> index_;
  // Backups by their server, for each server of a primary.
  std::map<uint32_t, std::vector<uint32_t>> pairs_;
  uint32_t domain_count_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<ShardRange>> CutTable(const TableSpec& spec, uint32_t shards_min) {
  HOTBED_RETURN_IF_ERROR(CheckShardsMin(spec, shards_min));
  const uint64_t units = Units(spec);
  const uint64_t count = RangeCount(spec, shards_min);
  const uint64_t size = units / count;
  const uint64_t longer = units % count;
  std::vector<ShardRange> ranges;
  ranges.reserve(count * spec.column_slices);
  for (uint32_t slice = 0; slice < spec.column_slices; ++slice) {
    const ColumnRange columns = SliceColumns(spec.dim, spec.column_slices, slice);
    uint64_t first = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t limit = first + size + (i < longer ? 1 : 0);
      ranges.push_back({first, limit, columns.first, columns.limit});
      first = limit;
    }
  }
  return ranges;
}

uint64_t RangeBytes(const TableSpec& spec, const ShardRange& range) {
  return ShareOf(spec, range, StoredBytes(spec, {range.column_first, range.column_limit}));
}

absl::StatusOr<Plan> PlaceTable(const TableSpec& spec, std::vector<ServerCandidate> servers,
                                uint32_t shards_min) {
  absl::StatusOr<std::vector<ShardRange>> ranges = CutTable(spec, shards_min);
  if (!ranges.ok()) return ranges.status();
  if (servers.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("table \"", spec.name, "\" cannot be placed: no shard server is live"));
  }
  std::sort(servers.begin(), servers.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.primary_bytes, a.bytes, a.server) <
           std::tuple(b.primary_bytes, b.bytes, b.server);
  });
  std::vector<std::pair<ServerId, uint64_t>> runs;  // server, its number of shards
  for (size_t i = 0; i < servers.size(); ++i) {
    const uint64_t longer = i < ranges->size() % servers.size() ? 1 : 0;
    runs.emplace_back(servers[i].server, ranges->size() / servers.size() + longer);
  }
  std::sort(runs.begin(), runs.end());

  Plan plan;
  plan.shards.reserve(ranges->size());
  for (const auto& [server, length] : runs) {
    for (uint64_t i = 0; i < length; ++i) {
      const uint32_t index = static_cast<uint32_t>(plan.shards.size());
      const ShardRange& range = (*ranges)[index];
      const ColumnRange columns{range.column_first, range.column_limit};
      plan.shards.push_back({.shard = {spec.id, index},
                             .range = range,
                             .bytes = RangeBytes(spec, range),
                             .weight_bytes = ShareOf(spec, range, WeightBytes(spec, columns)),
                             .assignments = {{server, Role::kPrimary}}});
    }
  }
  HOTBED_RETURN_IF_ERROR(AddBackups(spec, servers, &plan));
  return plan;
}

absl::Status AddBackups(const TableSpec& spec, const std::vector<ServerCandidate>& servers,
                        Plan* plan) {
  BackupPlacement backups(servers);
  if (backups.domains() < spec.replicas) {
    return TooFewDomains(spec, backups.domains(), servers.size());
  }
  backups.Place(spec.replicas, plan->shards);
  return absl::OkStatus();
}

absl::Status TooFewDomains(const TableSpec& spec, uint64_t domains, uint64_t servers) {
  return absl::FailedPreconditionError(absl::StrCat(
      "table \"", spec.name, "\" cannot be placed: ", spec.replicas,
      " replicas need servers of as many failure domains, and the ", servers,
      " servers that may take shards have ", domains,
      "; start servers on other hosts (or name the domains with --failure-domain), or ask for "
      "fewer replicas"));
}

}  // namespace hotbed
