// While a polling thread is at one event, what shards say to their copies waits for the end of it:
// a push touches many shards, and so do the records that come in one message, and each message on
// the wire costs about as much as some hundred rows.
#ifndef HOTBED_SERVER_PEERS_REPLICA_BATCH_H_
#define HOTBED_SERVER_PEERS_REPLICA_BATCH_H_

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace hotbed {

// Of one thread and one scope. Scopes do not nest: the inner one is part of the outer.
class ReplicaBatch {
 public:
  // Has something to write.
  class Writer {
   public:
    virtual ~Writer() = default;
    virtual void Flush() = 0;
  };

  ReplicaBatch() : outermost_(current_ == nullptr) {
    if (outermost_) current_ = this;
  }
  ~ReplicaBatch() {
    if (!outermost_) return;
    // Flush may send, not batch: who is told of nothing here writes at once.
    current_ = nullptr;
    for (const std::shared_ptr<Writer>& writer : writers_) writer->Flush();
  }
  ReplicaBatch(const ReplicaBatch&) = delete;
  ReplicaBatch& operator=(const ReplicaBatch&) = delete;

  // False: this thread is in no scope; write now. True: `writer` is flushed at the end of it.
  static bool Defer(const std::shared_ptr<Writer>& writer) {
    if (current_ == nullptr) return false;
    std::vector<std::shared_ptr<Writer>>& writers = current_->writers_;
    if (std::find(writers.begin(), writers.end(), writer) == writers.end()) {
      writers.push_back(writer);
    }
    return true;
  }

 private:
  static inline thread_local ReplicaBatch* current_ = nullptr;
  const bool outermost_;
  std::vector<std::shared_ptr<Writer>> writers_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_REPLICA_BATCH_H_
