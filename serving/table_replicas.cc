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

}  // namespace

// With the parts that this server has.
std::vector<v1::OrderedCopy> TableReplicas::CopiesOf(const v1::ServingOrders& orders) {
  std::vector<v1::OrderedCopy> copies(orders.beside().begin(), orders.beside().end());
  const int tables = std::min(orders.tables_size(), orders.specs_size());
  for (int i = 0; i < tables; ++i) {
    v1::OrderedCopy& copy = copies.emplace_back();
    *copy.mutable_table() = orders.tables(i);
    *copy.mutable_spec() = orders.specs(i);
    if (i < orders.feeders_size()) copy.set_feeder(orders.feeders(i));
  }
  return copies;
}

void TableReplicas::Obey(const v1::ServingOrders& orders, const std::string& cluster) {
  TableReplica::Source source = source_;
  source.cluster = cluster;
  Copies before, next;
  {
    absl::MutexLock lock(&mu_);
    before = copies_;
  }
  const std::vector<v1::OrderedCopy> ordered = CopiesOf(orders);
  for (size_t i = 0; i < ordered.size(); ++i) {
    const v1::ServedTable& served = ordered[i].table();
    const ServedPart part = ServedPartOn(served, source_.server).value_or(ServedPart());
    const auto cut = static_cast<int>(i) >= orders.beside_size() ? TableReplica::Cut::kPresent
                     : ordered[i].leaves()                       ? TableReplica::Cut::kLeaving
                                                                 : TableReplica::Cut::kComing;
    const auto& alone = orders.alone();
    const CopyKey key = {served.table(), part};
    std::shared_ptr<TableReplica>& replica = next[key];
    const auto known = before.find(key);
    if (known != before.end() && known->second->format() == served.format()) {
      replica = known->second;
      before.erase(known);
    } else {
      HOTBED_LOG(Info) << "serving part " << part.part + 1 << " of " << part.parts << " of "
                       << ordered[i].spec().name() << " as "
                       << v1::ServedFormat_Name(served.format());
      replica = std::make_shared<TableReplica>(
          served, ordered[i].spec(), source, ordered[i].feeder(), &memory_, &relay_memory_, clock_);
    }
    replica->relay()->SetFeeder(ordered[i].feeder());
    const bool is_alone = std::find(alone.begin(), alone.end(), served.table()) != alone.end();
    replica->SetOrder(
        {.staleness_ms_max = served.staleness_ms_max(), .cut = cut, .alone = is_alone});
    const std::vector<v1::ServedVersion> versions = VersionsOf(orders, served.table());
    replica->OrderVersions(versions, {orders.current().begin(), orders.current().end()});
  }
  {
    absl::MutexLock lock(&mu_);
    copies_ = std::move(next);
    ordered_ = {{orders.versions().begin(), orders.versions().end()},
                {orders.current().begin(), orders.current().end()}};
  }
  // Joined here, not by the lookup that holds the last reference.
  for (const auto& [key, replica] : before) {
    HOTBED_LOG(Info) << "not serving part " << key.part.part + 1 << " of " << key.part.parts
                     << " of " << replica->name() << " any more";
    const bool keeps_disk = stops();
    replica->Stop(keeps_disk);
    if (!keeps_disk) replica->DropDisk();
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

template <typename Is>
std::shared_ptr<const TableReplica> TableReplicas::FindFirst(Is is) const {
  absl::MutexLock lock(&mu_);
  std::shared_ptr<const TableReplica> found;
  for (const auto& [key, replica] : copies_) {
    if (is(*replica) && (found == nullptr || found->cut() != TableReplica::Cut::kPresent))
      found = replica;
  }
  return found;
}

std::shared_ptr<const TableReplica> TableReplicas::Find(uint32_t table) const {
  return FindFirst([table](const TableReplica& one) { return one.table() == table; });
}

std::shared_ptr<const TableReplica> TableReplicas::Find(const std::string& name) const {
  return FindFirst([&name](const TableReplica& one) { return one.name() == name; });
}

std::shared_ptr<const TableReplica> TableReplicas::Find(uint32_t table,
                                                        const ServedPart& part) const {
  absl::MutexLock lock(&mu_);
  const auto found = copies_.find({table, part});
  return found == copies_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<const TableReplica>> TableReplicas::All() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<const TableReplica>> all;
  for (const auto& [key, replica] : copies_) all.push_back(replica);
  return all;
}

std::vector<std::shared_ptr<const TableReplica>> TableReplicas::Present() const {
  std::vector<std::shared_ptr<const TableReplica>> present = All();
  std::erase_if(present,
                [](const auto& replica) { return replica->cut() != TableReplica::Cut::kPresent; });
  return present;
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
      for (const auto& [key, replica] : copies_) replicas.push_back(replica);
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
