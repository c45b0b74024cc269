#include "serving/table_replicas.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "common/log.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr absl::Duration kVersionsAgain = absl::Milliseconds(100);

std::vector<v1::ServedVersion> VersionsOf(const v1::ServingOrders& orders, uint32_t table) {
  std::vector<v1::ServedVersion> versions;
  for (const v1::ServedVersion& version : orders.versions()) {
    const auto& tables = version.tables();
    if (std::find(tables.begin(), tables.end(), table) != tables.end()) versions.push_back(version);
  }
  return versions;
}

// 0: none of `versions` is.
uint64_t CurrentOf(const v1::ServingOrders& orders,
                   const std::vector<v1::ServedVersion>& versions) {
  for (const v1::ServedVersion& version : versions) {
    const auto& current = orders.current();
    if (std::find(current.begin(), current.end(), version.number()) != current.end()) {
      return version.number();
    }
  }
  return 0;
}

}  // namespace

void TableReplicas::Obey(const v1::ServingOrders& orders, const std::string& cluster) {
  TableReplica::Source source = source_;
  source.cluster = cluster;
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
    const ServedPart part = ServedPartOn(served, source_.server).value_or(ServedPart());
    const std::string feeder = i < orders.feeders_size() ? orders.feeders(i) : "";
    if (replica != nullptr && replica->format() == served.format() && replica->part() == part) {
      replica->SetStalenessMax(served.staleness_ms_max());
      replica->relay()->SetFeeder(feeder);
      continue;
    }
    if (replica != nullptr) gone.push_back(replica);
    HOTBED_LOG(Info) << "serving part " << part.part + 1 << " of " << part.parts << " of "
                     << orders.specs(i).name() << " as " << v1::ServedFormat_Name(served.format());
    replica = std::make_shared<TableReplica>(served, orders.specs(i), source, feeder, &memory_,
                                             &relay_memory_, clock_);
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
  for (const auto& [table, replica] : next) {
    const std::vector<v1::ServedVersion> versions = VersionsOf(orders, table);
    replica->OrderVersions(versions, CurrentOf(orders, versions));
  }
  {
    absl::MutexLock lock(&mu_);
    tables_ = std::move(next);
    ordered_ = {{orders.versions().begin(), orders.versions().end()},
                {orders.current().begin(), orders.current().end()}};
  }
  // Joined here, not by the lookup that holds the last reference.
  for (const std::shared_ptr<TableReplica>& replica : gone) {
    replica->Stop();
    if (!stops()) replica->DropDisk();
  }
  if (!std::exchange(cleaned_, true) && !stops()) DropOtherFolders();
}

void TableReplicas::DropOtherFolders() const {
  if (source_.disk.empty()) return;
  std::set<std::string> used;
  for (const auto& replica : All()) used.insert(replica->folder());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(source_.disk, error)) {
    std::error_code ignored;
    if (entry.is_directory(ignored) && !used.contains(entry.path().filename()))
      std::filesystem::remove_all(entry, ignored);
  }
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

OrderedVersions TableReplicas::Versions() const {
  absl::MutexLock lock(&mu_);
  return ordered_;
}

void TableReplicas::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  places_.Stop();
  if (versions_.joinable()) versions_.join();
  Obey(v1::ServingOrders(), "");
}

bool TableReplicas::stops() const {
  absl::MutexLock lock(&mu_);
  return stops_;
}

// One at a time, so that the memory and the reads of take-ups are bounded.
void TableReplicas::TakeUpVersions() {
  for (;;) {
    std::vector<std::shared_ptr<TableReplica>> replicas;
    {
      absl::MutexLock lock(&mu_);
      for (const auto& [table, replica] : tables_) replicas.push_back(replica);
    }
    bool any = false;
    for (const std::shared_ptr<TableReplica>& replica : replicas) {
      any |= replica->TakeUpNext(&places_, [this] { return stops(); });
    }
    absl::MutexLock lock(&mu_);
    if (AwaitFor(&mu_, absl::Condition(&stops_), any ? absl::ZeroDuration() : kVersionsAgain)) {
      return;
    }
  }
}

}  // namespace hotbed
