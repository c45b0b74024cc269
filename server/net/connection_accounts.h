// What each client connection has in flight of the budgets of a data server. Thread-safe.
#ifndef HOTBED_SERVER_NET_CONNECTION_ACCOUNTS_H_
#define HOTBED_SERVER_NET_CONNECTION_ACCOUNTS_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/net/byte_budget.h"

namespace hotbed {

struct ConnectionAccount {
  ByteBudget::Account pulls;
  ByteBudget::Account lookups;
  ByteBudget::Account pushes;
};

// Outlives the accounts that it gives out.
class ConnectionAccounts {
 public:
  // The account of a connection, the same for all calls that are open on it. `peer` as gRPC writes
  // it; it has a port, so it names one connection.
  std::shared_ptr<ConnectionAccount> Of(const std::string& peer) {
    absl::MutexLock lock(&mu_);
    std::weak_ptr<ConnectionAccount>& place = of_peer_[peer];
    std::shared_ptr<ConnectionAccount> account = place.lock();
    if (account != nullptr) return account;
    account = std::shared_ptr<ConnectionAccount>(new ConnectionAccount,
                                                 [this](ConnectionAccount* gone) { Forget(gone); });
    for (ByteBudget::Account* of : {&account->pulls, &account->lookups, &account->pushes}) {
      of->peer = peer;
    }
    place = account;
    return account;
  }

 private:
  void Forget(ConnectionAccount* account) {
    {
      absl::MutexLock lock(&mu_);
      const auto found = of_peer_.find(account->pulls.peer);
      // A later call of the same peer may have an account of its own already.
      if (found != of_peer_.end() && found->second.expired()) of_peer_.erase(found);
    }
    delete account;
  }

  absl::Mutex mu_;
  absl::flat_hash_map<std::string, std::weak_ptr<ConnectionAccount>> of_peer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_CONNECTION_ACCOUNTS_H_
