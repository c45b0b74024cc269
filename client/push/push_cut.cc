// Shards that were cut while pushes to them are under way. The parts of a shard have inherited its
// sessions, so each goes on with the same sequence numbers, with the rows that are its own; a part
// of a push that was applied before the cut is answered as a duplicate by both.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "client/push/push_engine.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

bool SameRows(const ShardRange& a, const ShardRange& b) {
  return a.first == b.first && a.limit == b.limit;
}

}  // namespace

ShardChain* PushEngine::ChainIn(const ClusterMap& map, ShardId shard,
                                std::deque<ShardChain>* chains) {
  while (chains->size() <= shard.index) {
    ShardChain& chain = chains->emplace_back();
    chain.shard = {shard.table, static_cast<uint32_t>(chains->size() - 1)};
    const ShardRecord* const record = map.Shard(chain.shard);
    if (record != nullptr) chain.range = record->range;
  }
  return &(*chains)[shard.index];
}

std::vector<ShardChain*> PushEngine::LearnCuts(const ClusterMap& map) {
  if (map.cuts() == cuts_) return {};
  cuts_ = map.cuts();
  std::vector<ShardChain*> cut;
  for (auto& [table, chains] : chains_) {
    for (ShardChain& chain : chains) {
      const ShardRecord* const record = map.Shard(chain.shard);
      if (record == nullptr || SameRows(record->range, chain.range)) continue;
      chain.divides = true;
      cut.push_back(&chain);
    }
  }
  // A part of a part waits for that part.
  std::sort(cut.begin(), cut.end(), [](const ShardChain* a, const ShardChain* b) {
    return a->range.limit - a->range.first > b->range.limit - b->range.first;
  });
  for (ShardChain* const chain : cut) {
    for (const ShardRecord& record : map.Table(chain->shard.table)->shards) {
      const bool inside =
          record.range.first >= chain->range.first && record.range.limit <= chain->range.limit;
      if (!inside || record.shard == chain->shard || record.epoch == 0) continue;
      ChainOf(map, record.shard)->waits_for = chain;
    }
  }
  std::vector<ShardChain*> free_again;
  for (ShardChain* const chain : cut) DivideIfDrained(chain, map, &free_again);
  return free_again;
}

void PushEngine::DivideIfDrained(ShardChain* chain, const ClusterMap& map,
                                 std::vector<ShardChain*>* free_again) {
  if (!chain->divides || chain->waits_for != nullptr || chain->chain.in_flight() > 0) return;
  chain->divides = false;
  chain->restart_now = false;
  free_again->push_back(chain);
  const TableRoute* const route = map.Table(chain->shard.table);
  if (route != nullptr) chain->range = route->shards[chain->shard.index].range;
  std::vector<ShardChain*> parts = {chain};
  for (ShardChain& other : chains_[chain->shard.table]) {
    if (other.waits_for == chain) parts.push_back(&other);
  }
  std::vector<std::deque<ChainedPart*>> divided(parts.size());
  for (ChainedPart* const part : chain->chain.TakeParts()) {
    auto* const whole = static_cast<PushPart*>(part);
    whole->DropThrough(chain->chain.known_seq());
    DividePart(whole, parts, &divided);
  }
  for (ChainedPart* const part : divided[0]) chain->chain.Append(part);
  for (size_t i = 1; i < parts.size(); ++i) {
    parts[i]->waits_for = nullptr;
    parts[i]->chain.Inherit(chain->chain, divided[i]);
    free_again->push_back(parts[i]);
    DivideIfDrained(parts[i], map, free_again);
  }
}

void PushEngine::DividePart(PushPart* part, absl::Span<ShardChain* const> chains,
                            std::vector<std::deque<ChainedPart*>>* divided) {
  const PushPart whole = *part;
  const bool hashed = whole.table->options().hashed;
  PushPart* to = part;  // the part itself stays the first that has rows
  for (size_t i = 0; i < chains.size(); ++i) {
    const uint64_t first = chains[i]->range.first_position(hashed);
    const uint64_t last = chains[i]->range.last_position(hashed);
    PushPart of_chain = whole.OfRows(chains[i]->shard.index, [&](uint64_t id) {
      const uint64_t position = hashed ? Mix64(id) : id;
      return position >= first && position <= last;
    });
    if (of_chain.rows == 0) continue;
    if (to == nullptr) {
      to = &part->call->cut_parts.emplace_back();
      ++part->call->parts_left;
    }
    *to = of_chain;
    (*divided)[i].push_back(std::exchange(to, nullptr));
  }
}

}  // namespace hotbed
