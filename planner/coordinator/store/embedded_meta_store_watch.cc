// The background half of EmbeddedMetaStore: watches, and the end of leases.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/await_for.h"
#include "common/log.h"
#include "planner/coordinator/store/embedded_meta_store.h"

namespace hotbed {

struct EmbeddedMetaStore::Watcher {
  std::string prefix;
  uint64_t position = 0;  // every event up to this revision was delivered
  OnEvents on_events;     // called by the background thread only
  bool delivering = false;
  bool ended = false;
};

class EmbeddedMetaStore::WatchHandle : public MetaStore::Watch {
 public:
  WatchHandle(EmbeddedMetaStore* store, std::shared_ptr<Watcher> watcher)
      : store_(store), watcher_(std::move(watcher)) {}
  ~WatchHandle() override {
    absl::MutexLock lock(&store_->mu_);
    watcher_->ended = true;
    store_->mu_.Await(absl::Condition(
        +[](Watcher* w) { return !w->delivering; }, watcher_.get()));
    store_->watchers_.remove(watcher_);
  }

 private:
  EmbeddedMetaStore* const store_;
  const std::shared_ptr<Watcher> watcher_;
};

absl::StatusOr<std::unique_ptr<MetaStore::Watch>> EmbeddedMetaStore::WatchPrefix(
    const std::string& prefix, uint64_t after_revision, OnEvents on_events) {
  absl::MutexLock lock(&mu_);
  if (after_revision < compacted_) {
    return absl::OutOfRangeError(absl::StrCat("revision ", after_revision,
                                              " is compacted: the history begins after ",
                                              compacted_, "; read the range again"));
  }
  auto watcher = std::make_shared<Watcher>();
  watcher->prefix = prefix;
  watcher->position = after_revision;
  watcher->on_events = std::move(on_events);
  watchers_.push_back(watcher);
  return std::make_unique<WatchHandle>(this, std::move(watcher));
}

std::vector<LeaseId> EmbeddedMetaStore::DueLeases() const {
  std::vector<LeaseId> due;
  const int64_t now = clock_->NowNs();
  for (const auto& [id, lease] : leases_) {
    if (lease.deadline_ns <= now) due.push_back(id);
  }
  return due;
}

bool EmbeddedMetaStore::SomeoneBehind() const {
  for (const auto& watcher : watchers_) {
    if (!watcher->ended && watcher->position < revision_) return true;
  }
  return false;
}

bool EmbeddedMetaStore::DeliverOne() {
  std::shared_ptr<Watcher> watcher;
  std::vector<WatchEvent> events;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& w : watchers_) {
      if (!w->ended && w->position < revision_) {
        watcher = w;
        break;
      }
    }
    if (watcher == nullptr) return false;
    if (watcher->position < compacted_) {
      watcher->ended = true;  // the empty call says so
    } else {
      auto next = std::upper_bound(
          history_.begin(), history_.end(), watcher->position,
          [](uint64_t position, const Commit& c) { return position < c.revision; });
      for (const WatchEvent& e : next->events) {
        if (absl::string_view(e.kv.key).substr(0, watcher->prefix.size()) == watcher->prefix) {
          events.push_back(e);
        }
      }
      watcher->position = next->revision;
      if (events.empty()) return true;
    }
    // Behind the others: a busy watcher must not starve them.
    watchers_.remove(watcher);
    watchers_.push_back(watcher);
    watcher->delivering = true;
  }
  watcher->on_events(events);
  absl::MutexLock lock(&mu_);
  watcher->delivering = false;
  return true;
}

void EmbeddedMetaStore::RunBackground() {
  while (true) {
    std::vector<LeaseId> due;
    {
      absl::MutexLock lock(&mu_);
      const auto wake = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stopping_ || SomeoneBehind();
      };
      AwaitFor(&mu_, absl::Condition(&wake), options_.lease_poll_interval);
      if (stopping_) return;
      due = DueLeases();
    }
    for (const LeaseId lease : due) {
      absl::Status s = EndLease(lease, true);
      if (!s.ok() && !absl::IsNotFound(s)) {
        HOTBED_LOG_EVERY_S(Error, 5) << "cannot end lease " << lease << ": " << s.ToString();
      }
    }
    while (DeliverOne()) {
    }
  }
}

}  // namespace hotbed
