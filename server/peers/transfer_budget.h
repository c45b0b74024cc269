// Bounds the memory of messages received from other servers, apart from the memory of clients'
// requests, so that neither can starve the other.
//
// There are two kinds, because they become free in different ways:
// - Rows of snapshot transfers become free when this server's disk has taken them. Beyond their
//   limit the streams that carry them are not read, and flow control holds the sender back.
// - Log records become free when their entries are committed, which the primary reports on the same
//   stream: to stop reading it could mean waiting for ever. Beyond their limit the stream ends
//   instead; the sender starts over and reports the commit LSN first.
//
// Thread-safe. Received memory shares ownership of the budget and may outlive the data port.
#ifndef HOTBED_SERVER_PEERS_TRANSFER_BUDGET_H_
#define HOTBED_SERVER_PEERS_TRANSFER_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class TransferBudget : public std::enable_shared_from_this<TransferBudget> {
 public:
  // A stream that may have to wait before it reads on.
  class Reader {
   public:
    // False: the last reference has gone already. True: UnrefReader() follows.
    virtual bool TryRefReader() = 0;
    virtual void ReadAgain() = 0;
    virtual void UnrefReader() = 0;

   protected:
    ~Reader() = default;
  };
  enum class Kind { kLog, kRows };

  TransferBudget(uint64_t log_bytes_max, uint64_t rows_bytes_max)
      : log_bytes_max_(log_bytes_max), rows_bytes_max_(rows_bytes_max) {}

  // `bytes` of memory, 8-byte aligned, counted until the last owner releases it. Null: kLog bytes
  // would exceed their limit (a single allocation may be larger).
  std::shared_ptr<uint8_t> Allocate(Kind kind, uint64_t bytes);

  // Whether a stream may read on. If not, ReadAgain() follows once it may. Call Forget() before the
  // reader dies.
  bool MayRead(Reader* reader);
  void Forget(Reader* reader);

  uint64_t log_bytes() const { return log_bytes_.load(std::memory_order_relaxed); }
  uint64_t rows_bytes() const { return rows_bytes_.load(std::memory_order_relaxed); }
  uint64_t bytes_max() const { return log_bytes_max_ + rows_bytes_max_; }

 private:
  void Release(Kind kind, uint64_t bytes);

  const uint64_t log_bytes_max_;
  const uint64_t rows_bytes_max_;
  std::atomic<uint64_t> log_bytes_{0};
  std::atomic<uint64_t> rows_bytes_{0};
  absl::Mutex mu_;
  absl::flat_hash_set<Reader*> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_TRANSFER_BUDGET_H_
