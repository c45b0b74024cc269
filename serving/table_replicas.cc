#include "serving/table_replicas.h"

#include <algorithm>
#include <utility>

#include "common/log.h"

namespace hotbed {

void TableReplicas::Obey(const v1::ServingOrders& orders) {
  absl::flat_hash_map<uint32_t, std::shared_ptr<TableReplica>> next;
  std::vector<std::shared_ptr<TableReplica>> gone;
  {
    absl::MutexLock lock(&mu_);
    next = tables_;
  }
  const int tables = std::min(orders.tables_size(), orders.specs_size());
  for (int i = 0; i < tables; ++i) {
    const v1::ServedTable& served = orders.tables(i);
    std::shared_ptr<TableReplica>& replica = next[served.table()];
    if (replica != nullptr && replica->format() == served.format()) {
      replica->SetStalenessMax(served.staleness_ms_max());
      continue;
    }
    if (replica != nullptr) gone.push_back(replica);
    HOTBED_LOG(Info) << "serving " << orders.specs(i).name() << " as "
                     << v1::ServedFormat_Name(served.format());
    replica = std::make_shared<TableReplica>(served, orders.specs(i), source_, &memory_, clock_);
  }
  for (auto it = next.begin(); it != next.end();) {
    const bool ordered =
        std::any_of(orders.tables().begin(), orders.tables().end(),
                    [&](const v1::ServedTable& served) { return served.table() == it->first; });
    if (ordered) {
      ++it;
      continue;
    }
    HOTBED_LOG(Info) << "not serving " << it->second->name() << " any more";
    gone.push_back(it->second);
    next.erase(it++);
  }
  {
    absl::MutexLock lock(&mu_);
    tables_ = std::move(next);
  }
  // Joined here, not by the lookup that holds the last reference.
  for (const std::shared_ptr<TableReplica>& replica : gone) replica->Stop();
}

std::shared_ptr<const TableReplica> TableReplicas::Find(uint32_t table) const {
  absl::MutexLock lock(&mu_);
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : found->second;
}

std::shared_ptr<const TableReplica> TableReplicas::Find(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  const auto found = std::find_if(tables_.begin(), tables_.end(),
                                  [&](const auto& one) { return one.second->name() == name; });
  return found == tables_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<const TableReplica>> TableReplicas::All() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<const TableReplica>> all;
  for (const auto& [table, replica] : tables_) all.push_back(replica);
  return all;
}

void TableReplicas::Stop() { Obey(v1::ServingOrders()); }

}  // namespace hotbed
