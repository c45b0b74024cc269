// Collects the messages between replicas that arise while a polling thread handles one event, so
// that they leave together at its end. A push touches many shards, as do the records of one
// message, and each message on the wire costs about as much as a hundred rows.
#ifndef HOTBED_SERVER_PEERS_REPLICA_BATCH_H_
#define HOTBED_SERVER_PEERS_REPLICA_BATCH_H_

#include <algorithm>
#include <memory>
#include <vector>

namespace hotbed {

// Belongs to one thread and one scope. An inner scope is part of the outer one.
class ReplicaBatch {
 public:
  // Has messages to write.
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
    // Messages sent by Flush are written at once.
    current_ = nullptr;
    for (const std::shared_ptr<Writer>& writer : writers_) writer->Flush();
  }
  ReplicaBatch(const ReplicaBatch&) = delete;
  ReplicaBatch& operator=(const ReplicaBatch&) = delete;

  // True: `writer` is flushed at the end of this thread's scope. False: there is none; write now.
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
