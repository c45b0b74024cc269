// The bytes that each client connection, and each address, has in flight of the
// budgets of a data server. Thread-safe.
#ifndef HOTBED_SERVER_NET_CONNECTION_ACCOUNTS_H_
#define HOTBED_SERVER_NET_CONNECTION_ACCOUNTS_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/net/byte_budget.h"

namespace hotbed {

struct PeerShares {
  ByteBudget::Peer pulls;
  ByteBudget::Peer lookups;
  ByteBudget::Peer pushes;
};

struct ConnectionAccount {
  std::shared_ptr<PeerShares> peer;
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
    account->peer = PeerOf(peer.substr(0, peer.rfind(':')));
    account->pulls = {.of = &account->peer->pulls, .peer = peer};
    account->lookups = {.of = &account->peer->lookups, .peer = peer};
    account->pushes = {.of = &account->peer->pushes, .peer = peer};
    place = account;
    return account;
  }

 private:
  std::shared_ptr<PeerShares> PeerOf(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::weak_ptr<PeerShares>& place = of_address_[address];
    std::shared_ptr<PeerShares> shares = place.lock();
    if (shares == nullptr) place = shares = std::make_shared<PeerShares>();
    return shares;
  }
  void Forget(ConnectionAccount* account) {
    {
      absl::MutexLock lock(&mu_);
      const auto found = of_peer_.find(account->pulls.peer);
      // A later call of the same peer may have an account of its own already.
      if (found != of_peer_.end() && found->second.expired()) of_peer_.erase(found);
      const std::string& peer = account->pulls.peer;
      account->peer = nullptr;
      const auto shares = of_address_.find(peer.substr(0, peer.rfind(':')));
      if (shares != of_address_.end() && shares->second.expired()) of_address_.erase(shares);
    }
    delete account;
  }

  absl::Mutex mu_;
  absl::flat_hash_map<std::string, std::weak_ptr<ConnectionAccount>> of_peer_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::weak_ptr<PeerShares>> of_address_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_CONNECTION_ACCOUNTS_H_
