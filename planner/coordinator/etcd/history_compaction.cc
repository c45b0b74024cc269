#include "planner/coordinator/etcd/history_compaction.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/threads/await_for.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {

HistoryCompaction::HistoryCompaction(EtcdClient* client, absl::Duration interval,
                                     std::function<bool()> leads)
    : client_(client), interval_(interval), leads_(std::move(leads)) {
  if (interval_ > absl::ZeroDuration()) thread_ = std::thread([this] { Run(); });
}

HistoryCompaction::~HistoryCompaction() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void HistoryCompaction::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(&mu_, absl::Condition(&stops_), interval_)) return;
    }
    if (leads_()) {
      Compact();
    } else {
      revision_ = 0;
    }
  }
}

void HistoryCompaction::Compact() {
  if (revision_ != 0) {
    const absl::Status done = client_->Compact(revision_);
    // Somebody else may have dropped more.
    if (!done.ok() && !absl::IsOutOfRange(done)) {
      HOTBED_LOG(Warning) << "the history of keys before revision " << revision_
                          << " stays: " << done.message();
    }
  }
  etcdserverpb::RangeRequest look;
  look.set_key(absl::StrCat(client_->address().prefix, keys::kElectionKey));
  const absl::StatusOr<etcdserverpb::RangeResponse> found = client_->Range(look);
  revision_ = found.ok() ? found->header().revision() : 0;
}

}  // namespace hotbed
