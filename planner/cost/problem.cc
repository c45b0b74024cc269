#include "planner/cost/problem.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "planner/cost/problem_builder.h"
#include "planner/model/saturated.h"

namespace hotbed {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 62;  // of all units together
constexpr int kTickBits = 20;                      // of a nanosecond, at most

PlanError Strict(const std::string& table, std::string message) {
  PlanError error;
  error.kind = PlanErrorKind::kStrictConstraints;
  if (!table.empty()) error.table = table;
  error.message = std::move(message);
  return error;
}

}  // namespace

uint32_t ProblemBuilder::AllowedIndex(const std::vector<uint32_t>& servers) {
  const auto [it, added] =
      allowed_index_.emplace(servers, static_cast<uint32_t>(problem_.allowed.size()));
  if (added) {
    AllowedServers set;
    set.all = false;
    set.servers = servers;
    set.holds.assign(problem_.servers.size(), false);
    for (const uint32_t s : servers) set.holds[s] = true;
    problem_.allowed.push_back(std::move(set));
  }
  return it->second;
}

uint32_t ProblemBuilder::HostsOf(const AllowedServers& allowed) const {
  std::set<uint32_t> hosts;
  for (uint32_t s = 0; s < problem_.servers.size(); ++s) {
    const ProblemServer& server = problem_.servers[s];
    if (server.usable && (allowed.all || allowed.holds[s])) hosts.insert(server.host);
  }
  return static_cast<uint32_t>(hosts.size());
}

std::optional<PlanError> ProblemBuilder::AllowedFor(uint32_t table, uint32_t& primary,
                                                    uint32_t& replicas) {
  const InputTable& t = input_.tables[table];
  const TableConstraint* const constraint = constraints_[table];
  if (constraint != nullptr && !constraint->servers.empty()) {
    std::vector<uint32_t> usable;
    for (const uint32_t s : constraint->servers) {
      if (problem_.servers[s].usable) usable.push_back(s);
    }
    std::sort(usable.begin(), usable.end());
    usable.erase(std::unique(usable.begin(), usable.end()), usable.end());
    if (usable.empty()) {
      return Strict(t.name,
                    absl::StrCat("table \"", t.name, "\" is pinned to ", constraint->servers.size(),
                                 " servers that are all draining; pin it to others"));
    }
    primary = AllowedIndex(usable);
  }
  const uint32_t wanted = std::max(1u, t.replicas);
  if (wanted == 1) return std::nullopt;
  replicas = HostsOf(problem_.allowed[primary]) >= wanted ? primary : 0;
  if (all_hosts_ == 0) all_hosts_ = HostsOf(problem_.allowed[0]);
  if (all_hosts_ >= wanted || KeepsReplicas(table)) return std::nullopt;
  PlanError error = Strict(
      t.name,
      absl::StrCat("table \"", t.name, "\" wants ", wanted,
                   " replicas on distinct hosts, and the servers that aren't draining are on ",
                   all_hosts_, "; ask for fewer replicas or add hosts"));
  error.limit = all_hosts_;
  return error;
}

std::optional<PlanError> ProblemBuilder::CheckTotal() const {
  absl::uint128 needed = 0;
  for (const Unit& unit : problem_.units) needed += unit.bytes;
  absl::uint128 room = 0;
  for (const ProblemServer& server : problem_.servers) {
    if (server.usable) room += server.capacity.Total();
  }
  PlanError error;
  if (needed > room) {
    error.kind = PlanErrorKind::kInsufficientStorage;
    error.limit = Saturated(room);
    error.missing_bytes = Saturated(needed - room);
    error.message = absl::StrCat(
        "the tables with optimizer state and replicas are ", Saturated(needed), " bytes, the ",
        problem_.usable, " servers that may take them have ", *error.limit, ": ",
        *error.missing_bytes,
        " bytes are missing; add servers, host or spill bytes, or choose smaller weights, "
        "optimizer state or fewer replicas");
    return error;
  }
  if (needed > kBytesMax) {
    error.kind = PlanErrorKind::kInput;
    error.limit = kBytesMax;
    error.message = absl::StrCat("the tables with optimizer state and replicas are ",
                                 Saturated(needed), " bytes, the planner counts up to ", kBytesMax);
    return error;
  }
  return std::nullopt;
}

void ProblemBuilder::ScaleTicks() {
  double total = extra_ns_ + 1;
  for (const double ns : unit_ns_) total += ns;
  for (const double ns : load_ns_) total += ns;
  int exponent = 0;
  std::frexp(total, &exponent);  // total < 2^exponent
  problem_.ticks_per_ns = std::ldexp(1.0, std::min(kTickBits, 60 - exponent));
  const auto ticks = [&](double ns) {
    return static_cast<int64_t>(std::floor(ns * problem_.ticks_per_ns + 0.5));
  };
  for (size_t i = 0; i < unit_ns_.size(); ++i) problem_.units[i].ticks = ticks(unit_ns_[i]);
  for (size_t i = 0; i < load_ns_.size(); ++i) problem_.servers[i].load = ticks(load_ns_[i]);
  for (HeatEntry& entry : problem_.heat) {
    entry.host_extra *= problem_.ticks_per_ns;
    entry.spill_extra *= problem_.ticks_per_ns;
  }
}

PlanResult<Problem> ProblemBuilder::Build() {
  AddServers();
  problem_.device = model_.device();
  if (problem_.usable == 0) {
    return Strict("", absl::StrCat("all ", problem_.servers.size(),
                                   " servers are draining: nothing is left to plan for; add one"));
  }
  std::optional<PlanError> error = AddTables();
  if (!error.has_value()) error = CheckTotal();
  if (error.has_value()) return *std::move(error);
  ScaleTicks();
  return std::move(problem_);
}

PlanResult<Problem> BuildProblem(const PlannerInput& input) {
  return ProblemBuilder(input).Build();
}

}  // namespace hotbed
