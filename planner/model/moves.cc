#include "planner/model/moves.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

using Piece = std::tuple<uint64_t, uint64_t, uint32_t, uint32_t>;  // rows, then columns

// The holders of each piece of a table in one plan: server names in the plan's order.
using Holders = std::map<Piece, std::vector<std::string>>;

// The edges at which the ranges of both plans are cut.
struct Edges {
  std::set<uint64_t> rows;
  std::set<uint32_t> columns;
  void Add(const PlacedTable& table) {
    for (const PlacedRange& r : table.ranges) {
      rows.insert({r.row_first, r.row_limit});
      columns.insert({r.column_first, r.column_limit});
    }
  }
};

Holders HoldersOf(const PlannerOutput& plan, const PlacedTable& table, const Edges& edges) {
  Holders holders;
  for (const PlacedRange& r : table.ranges) {
    for (auto row = edges.rows.find(r.row_first); *row < r.row_limit; ++row) {
      for (auto column = edges.columns.find(r.column_first); *column < r.column_limit; ++column) {
        const Piece piece{*row, *std::next(row), *column, *std::next(column)};
        std::vector<std::string>& servers = holders[piece];
        const std::string& name = plan.servers[r.server].name;
        // The primary gives first, and is given first.
        servers.insert(r.role == Role::kPrimary ? servers.begin() : servers.end(), name);
      }
    }
  }
  return holders;
}

class Difference {
 public:
  Difference(const PlannerInput& input, const PlannerOutput& current, const PlannerOutput& wanted)
      : input_(input), current_(current), wanted_(wanted) {
    for (const InputServer& server : input.topology.servers) {
      const bool device = input.topology.device == PlannerDevice::kCuda;
      room_[server.name] = absl::uint128(server.host_bytes) + server.spill_bytes +
                           (device ? server.device_bytes : 0);
    }
  }

  PlanResult<std::vector<PlannedMove>> Run() {
    std::unordered_map<std::string, const PlacedTable*> now;
    for (const PlacedTable& table : current_.tables) now.emplace(table.name, &table);
    for (size_t t = 0; t < wanted_.tables.size() && t < input_.tables.size(); ++t) {
      const auto it = now.find(wanted_.tables[t].name);
      if (it != now.end()) AddTable(input_.tables[t], *it->second, wanted_.tables[t]);
    }
    return InOrder();
  }

 private:
  void AddTable(const InputTable& table, const PlacedTable& now, const PlacedTable& then) {
    Edges edges;
    edges.Add(now);
    edges.Add(then);
    const Holders before = HoldersOf(current_, now, edges);
    const Holders after = HoldersOf(wanted_, then, edges);
    for (const auto& [piece, servers] : after) {
      const auto it = before.find(piece);
      AddPiece(table, piece, it == before.end() ? std::vector<std::string>() : it->second, servers);
    }
  }

  void AddPiece(const InputTable& table, const Piece& piece, const std::vector<std::string>& before,
                const std::vector<std::string>& after) {
    const auto [row_first, row_limit, column_first, column_limit] = piece;
    const uint64_t bytes =
        RangeBytesOf(table, row_first, row_limit, RowBytes(table, column_limit - column_first));
    const auto has = [](const std::vector<std::string>& servers, const std::string& name) {
      return std::find(servers.begin(), servers.end(), name) != servers.end();
    };
    std::vector<std::string> leaving;
    std::string gone;
    for (const std::string& name : before) {
      if (room_.count(name) == 0) {
        gone = name;
      } else if (has(after, name)) {
        used_[name] += bytes;
      } else {
        leaving.push_back(name);
      }
    }
    size_t next = 0;
    for (const std::string& name : after) {
      if (has(before, name)) continue;
      PlannedMove move{table.name, row_first, row_limit, column_first, column_limit, "",
                       name,       bytes,     ""};
      if (next < leaving.size()) {
        move.from = leaving[next++];
        used_[move.from] += bytes;
        move.reason = ReasonToLeave(move.from, name);
      } else {
        move.reason = gone.empty() ? "another replica" : absl::StrCat(gone, " is gone");
      }
      pending_.push_back(std::move(move));
    }
  }

  std::string ReasonToLeave(const std::string& from, const std::string& to) const {
    for (const InputServer& server : input_.topology.servers) {
      if (server.name == from && server.draining) return absl::StrCat(from, " is draining");
    }
    return absl::StrCat("the plan has it on ", to);
  }

  PlanResult<std::vector<PlannedMove>> InOrder() {
    std::vector<PlannedMove> moves;
    while (!pending_.empty()) {
      std::vector<PlannedMove> left;
      for (PlannedMove& move : pending_) {
        if (used_[move.to] + move.bytes > room_[move.to]) {
          left.push_back(std::move(move));
          continue;
        }
        used_[move.to] += move.bytes;
        if (!move.from.empty()) used_[move.from] -= move.bytes;
        moves.push_back(std::move(move));
      }
      if (left.size() == pending_.size()) return NoOrder(left.front());
      pending_ = std::move(left);
    }
    return moves;
  }

  PlanError NoOrder(const PlannedMove& move) {
    const absl::uint128 missing = used_[move.to] + move.bytes - room_[move.to];
    PlanError error;
    error.kind = PlanErrorKind::kPartition;
    error.table = move.table;
    error.missing_bytes = missing > UINT64_MAX ? UINT64_MAX : absl::Uint128Low64(missing);
    error.message = absl::StrCat(
        "no order of the moves keeps every capacity: rows ", move.row_first, " to ", move.row_limit,
        " of table \"", move.table, "\" lack ", *error.missing_bytes, " bytes on ", move.to,
        ", and nothing else can leave first; add as much room there for the time of the moves");
    return error;
  }

  const PlannerInput& input_;
  const PlannerOutput& current_;
  const PlannerOutput& wanted_;
  std::unordered_map<std::string, absl::uint128> room_;
  std::unordered_map<std::string, absl::uint128> used_;
  std::vector<PlannedMove> pending_;
};

}  // namespace

PlanResult<std::vector<PlannedMove>> MovesBetween(const PlannerInput& input,
                                                  const PlannerOutput& current,
                                                  const PlannerOutput& wanted) {
  return Difference(input, current, wanted).Run();
}

}  // namespace hotbed
