#include "planner/coordinator/etcd/election.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(250);
constexpr int64_t kLeaseNs = Election::kLeaseS * 1'000'000'000;

}  // namespace

Election::Election(EtcdClient* client, std::string address)
    : client_(client),
      address_(std::move(address)),
      key_(absl::StrCat(client->address().prefix, keys::kElectionKey)),
      thread_([this] { Run(); }) {}

Election::~Election() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  thread_.join();
  if (lease_ != 0) client_->RevokeLease(lease_).IgnoreError();  // else it ends by itself
}

bool Election::leads() const {
  absl::MutexLock lock(&mu_);
  return leads_ && Clock::Real()->NowNs() < held_until_ns_.load();
}

std::string Election::leader() const {
  absl::MutexLock lock(&mu_);
  return leader_;
}

absl::Status Election::trouble() const {
  absl::MutexLock lock(&mu_);
  return trouble_;
}

uint64_t Election::term() const {
  absl::MutexLock lock(&mu_);
  return term_;
}

void Election::NoteHolder(int64_t lease) {
  leads_ = lease != 0;
  if (term_lease_ != lease) ++term_;
  term_lease_ = lease;
}

void Election::Run() {
  while (true) {
    const absl::Status status = leads() ? Keep() : Campaign();
    absl::MutexLock lock(&mu_);
    trouble_ = status;
    if (leads_ && !status.ok()) {
      leads_ = false;
      leader_.clear();
      // Where etcd only did not answer, such as while its members elect one of them, it may hold
      // the key for this lease still: Campaign finds it there. With another lease it would wait for
      // the end of this one.
      if (absl::IsAborted(status)) {
        lease_ = 0;
        NoteHolder(0);
      }
    }
    if (AwaitFor(&mu_, absl::Condition(&stops_), kLookEvery)) return;
  }
}

absl::Status Election::Campaign() {
  const int64_t begin_ns = Clock::Real()->NowNs();
  if (lease_ == 0) {
    HOTBED_ASSIGN_OR_RETURN(lease_, client_->GrantLease(kLeaseS));
  } else {
    HOTBED_ASSIGN_OR_RETURN(const int64_t left_s, client_->KeepLease(lease_));
    if (left_s <= 0) {
      lease_ = 0;
      absl::MutexLock lock(&mu_);
      NoteHolder(0);
      return absl::OkStatus();
    }
  }
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare* const compare = request.add_compare();
  compare->set_target(etcdserverpb::Compare::MOD);
  compare->set_key(key_);
  compare->set_mod_revision(0);  // there is none
  etcdserverpb::PutRequest* const put = request.add_success()->mutable_request_put();
  put->set_key(key_);
  put->set_value(address_);
  put->set_lease(lease_);
  HOTBED_RETURN_IF_ERROR(client_->Txn(request).status());
  etcdserverpb::RangeRequest look;
  look.set_key(key_);
  HOTBED_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse found, client_->Range(look));
  absl::MutexLock lock(&mu_);
  leader_ = found.kvs().empty() ? "" : found.kvs(0).value();
  // A transaction whose answer was lost may have taken it before.
  NoteHolder(!found.kvs().empty() && found.kvs(0).lease() == lease_ ? lease_ : 0);
  if (leads_) held_until_ns_ = begin_ns + kLeaseNs;
  return absl::OkStatus();
}

absl::Status Election::Keep() {
  const int64_t begin_ns = Clock::Real()->NowNs();
  const absl::StatusOr<int64_t> left_s = client_->KeepLease(lease_);
  if (left_s.ok() && *left_s > 0) {
    held_until_ns_ = begin_ns + kLeaseNs;
    return absl::OkStatus();
  }
  if (left_s.ok()) return absl::AbortedError("etcd has ended the lease of this coordinator");
  return Clock::Real()->NowNs() < held_until_ns_.load() ? absl::OkStatus() : left_s.status();
}

}  // namespace hotbed
