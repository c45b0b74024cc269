#include "server/tiers/memory/memory_division.h"

#include <algorithm>
#include <numeric>

namespace hotbed {
namespace {

uint64_t Above(uint64_t value, uint64_t limit) { return value > limit ? value - limit : 0; }

uint64_t Sum(const std::vector<uint64_t>& amounts) {
  return std::accumulate(amounts.begin(), amounts.end(), uint64_t{0});
}

// Cuts `amounts` in proportion, so that their sum is at most `sum_max`; returns the sum.
uint64_t Fit(std::vector<uint64_t>* amounts, uint64_t sum_max) {
  uint64_t sum = Sum(*amounts);
  if (sum <= sum_max) return sum;
  const double scale = static_cast<double>(sum_max) / static_cast<double>(sum);
  sum = 0;
  for (uint64_t& amount : *amounts) {
    amount = static_cast<uint64_t>(static_cast<double>(amount) * scale);
    sum += amount;
  }
  return sum;
}

class Division {
 public:
  Division(uint64_t budget, uint64_t taken, const std::vector<TableShare>& tables,
           const std::vector<ShardDemand>& shards)
      : budget_(budget), taken_(taken), tables_(tables), shards_(shards) {}

  std::vector<ShardTransfer> Run() {
    const std::vector<uint64_t> idle = MayLeave([](const ShardDemand& s) { return s.idle; });
    const std::vector<uint64_t> cold_max =
        MayLeave([](const ShardDemand& s) { return std::max(s.cold, s.idle); });
    std::vector<uint64_t> claims = Claims(), gains = Gains(Sum(idle));
    std::vector<uint64_t> forced = Movable(cold_max), debts = Debts();
    Fit(&gains, budget_ / kMovedShare);
    const uint64_t unused = Above(budget_, taken_), cold_sum = Sum(cold_max);
    const uint64_t claimed = Fit(&claims, std::min(budget_ / 2, unused + cold_sum + Sum(forced)));
    // Gains beyond what is unused or cold somewhere are not met.
    const uint64_t spare = Above(unused + cold_sum, claimed + Above(taken_, budget_));
    const uint64_t gained = Fit(&gains, spare);
    const std::vector<uint64_t> cold =
        IdleFirst(idle, cold_max, Above(gained + claimed + taken_, budget_));
    const uint64_t lost = Sum(cold);
    const uint64_t lacking = Above(claimed + taken_, budget_ + lost);
    const uint64_t overdrawn = std::min(lacking, Above(taken_, budget_));
    Fit(&forced, lacking - overdrawn);
    Fit(&debts, overdrawn);
    std::vector<ShardTransfer> transfers;
    for (size_t i = 0; i < shards_.size(); ++i) {
      const uint64_t others = forced[i] + debts[i] + AboveMost(i);
      transfers.push_back(
          Net(gains[i] + claims[i], cold[i], std::min(others, shards_[i].taken - cold[i])));
    }
    LetFewGive(cold_max, &transfers);
    // Idle rows may still have visits of earlier rounds.
    for (size_t i = 0; i < shards_.size(); ++i) {
      const uint64_t given = std::min(transfers[i].give_cold, idle[i]);
      transfers[i].give_cold -= given;
      transfers[i].give_forced += given;
    }
    return transfers;
  }

 private:
  uint64_t Floor() const {
    return std::min(budget_ / (kFloorShare * shards_.size()), kFloorBytesMax);
  }
  const TableShare& TableOf(size_t i) const { return tables_[shards_[i].table]; }
  // The shard's part of what its table has above `limit`.
  uint64_t PartAbove(size_t i, uint64_t limit) const {
    const TableShare& table = TableOf(i);
    if (table.taken == 0) return 0;
    return static_cast<uint64_t>(static_cast<double>(Above(table.taken, limit)) *
                                 static_cast<double>(shards_[i].taken) /
                                 static_cast<double>(table.taken));
  }
  uint64_t AboveMost(size_t i) const { return PartAbove(i, TableOf(i).most); }

  // The bytes that each shard gets in any case.
  std::vector<uint64_t> Claims() const {
    std::vector<uint64_t> claims;
    for (const ShardDemand& shard : shards_) {
      const TableShare& table = tables_[shard.table];
      uint64_t claim = 0;
      if (shard.refused > 0) {
        claim = std::max(Above(Floor(), shard.taken),
                         std::min(shard.refused, Above(table.least, table.taken)));
      }
      claims.push_back(std::min(claim, Above(table.most, table.taken)));
    }
    return claims;
  }
  // The part of the bytes that `of` counts which may make room for hotter rows.
  template <typename Of>
  std::vector<uint64_t> MayLeave(Of of) const {
    std::vector<uint64_t> bytes;
    for (size_t i = 0; i < shards_.size(); ++i) {
      bytes.push_back(std::min({of(shards_[i]), shards_[i].taken, PartAbove(i, TableOf(i).least)}));
    }
    return bytes;
  }
  // `wanted` of the cold bytes, idle ones before others.
  static std::vector<uint64_t> IdleFirst(std::vector<uint64_t> idle, std::vector<uint64_t> cold,
                                         uint64_t wanted) {
    for (size_t i = 0; i < cold.size(); ++i) cold[i] -= idle[i];
    const uint64_t lost = Fit(&idle, wanted);
    Fit(&cold, Above(wanted, lost));
    for (size_t i = 0; i < cold.size(); ++i) cold[i] += idle[i];
    return cold;
  }
  std::vector<uint64_t> Gains(uint64_t idle) const {
    uint64_t wanted = 0;
    std::vector<uint64_t> once;
    for (const ShardDemand& shard : shards_) {
      wanted += shard.wanted;
      once.push_back(Above(shard.refused, shard.wanted) / kReadOnceShare);
    }
    Fit(&once, Above(idle, wanted));
    std::vector<uint64_t> gains;
    for (size_t i = 0; i < shards_.size(); ++i) {
      const TableShare& table = TableOf(i);
      gains.push_back(std::min(shards_[i].wanted + once[i], Above(table.most, table.taken)));
    }
    return gains;
  }
  // The bytes that claims may force out in addition to the cold rows.
  std::vector<uint64_t> Movable(const std::vector<uint64_t>& cold) const {
    std::vector<uint64_t> movable;
    for (size_t i = 0; i < shards_.size(); ++i) {
      const uint64_t may_leave =
          std::min(Above(shards_[i].taken, Floor()), PartAbove(i, TableOf(i).least));
      movable.push_back(Above(may_leave, cold[i]));
    }
    return movable;
  }
  // Memory that was taken beyond the budget comes from those that still ask for more.
  std::vector<uint64_t> Debts() const {
    std::vector<uint64_t> debts;
    for (const ShardDemand& shard : shards_) debts.push_back(shard.refused > 0 ? shard.taken : 0);
    return debts;
  }

  ShardTransfer Net(uint64_t in, uint64_t cold, uint64_t forced) const {
    ShardTransfer net;
    const uint64_t out = cold + forced;
    if (in > out) {
      net.credit = in - out;
    } else {
      net.give_forced = std::min(forced, out - in);
      net.give_cold = out - in - net.give_forced;
    }
    return net;
  }

  // Amounts that are too small to move rows for are given by the shards that can give most.
  void LetFewGive(const std::vector<uint64_t>& cold_max, std::vector<ShardTransfer>* shards) const {
    const auto noise = [&](size_t i) {
      return std::min(shards_[i].taken / kNoiseShare, kNoiseBytesMax);
    };
    std::vector<size_t> givers;
    uint64_t left = 0;
    for (size_t i = 0; i < shards->size(); ++i) {
      ShardTransfer& shard = (*shards)[i];
      if (shard.credit > 0 || shard.give_forced > 0) continue;
      givers.push_back(i);
      if (shard.give_cold >= noise(i)) continue;
      left += shard.give_cold;
      shard.give_cold = 0;
    }
    const auto more = [&](size_t i) { return Above(cold_max[i], (*shards)[i].give_cold); };
    std::sort(givers.begin(), givers.end(), [&](size_t a, size_t b) { return more(a) > more(b); });
    for (const size_t i : givers) {
      uint64_t& cold = (*shards)[i].give_cold;
      const uint64_t given = std::min(left, more(i));
      if (given == 0 || cold + given < noise(i)) continue;
      cold += given;
      left -= given;
    }
  }

  const uint64_t budget_;
  const uint64_t taken_;
  const std::vector<TableShare>& tables_;
  const std::vector<ShardDemand>& shards_;
};

}  // namespace

std::vector<ShardTransfer> DivideMemory(uint64_t budget, uint64_t taken,
                                        const std::vector<TableShare>& tables,
                                        const std::vector<ShardDemand>& shards) {
  if (shards.empty()) return {};
  return Division(budget, taken, tables, shards).Run();
}

}  // namespace hotbed
