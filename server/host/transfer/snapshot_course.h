// One snapshot transfer of a shard to another server, as a sequence of messages: its begin, the
// rows in passes, each over the rows that changed since the previous pass began, and the meta
// (snapshot_sender.h). No threads and no clock: SnapshotSender adds the waiting and the rate, and
// the simulation (tests/sim) sends what it gives. Thread-compatible.
#ifndef HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_COURSE_H_
#define HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_COURSE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/shard.h"

namespace hotbed {

constexpr int kTransferPassesMax = 8;
constexpr uint64_t kTransferBlockBytes = 1ull << 20;

// How far the receiver is, by its answers.
struct SnapshotAnswers {
  bool accepted = false;
  uint64_t chunks = 0;  // written

  void Take(const ReplicaMessage& reply) {
    accepted = true;
    chunks = std::max(chunks, reply.chunk);
  }
  bool Cover(uint64_t sent) const { return accepted && chunks >= sent; }
};

class SnapshotCourse {
 public:
  struct Options {
    int passes_min = 1;  // before memory may hold the records since; above 1 only in the simulation
    int passes_max = kTransferPassesMax;
    uint64_t block_bytes = kTransferBlockBytes;
  };
  // `number` names the transfer on the wire.
  SnapshotCourse(std::shared_ptr<Shard> shard, const Member& to, uint64_t number, Options options)
      : shard_(std::move(shard)),
        marks_held_(shard_->HoldMarks()),
        to_(to),
        number_(number),
        options_(options) {}

  // The next message, to be sent when the receiver has written message.chunk chunks. One of kind
  // kNone is not sent: the pass has no more rows, and the next call is to come when the receiver
  // has written all of them. After an error the transfer is over. Reads rows, so it may wait for
  // the disk.
  absl::StatusOr<ReplicaMessage> Next();
  // To be asked before a message is sent: a shard that has left this server since Next() may have
  // lost rows while they were being read.
  absl::Status CheckWanted() const;

  Lsn lsn() const { return base_.lsn; }   // of the meta; 0: none yet
  int passes() const { return passes_; }  // begun
  bool holds() const { return holds_; }   // pushes may wait for this pass, the last one
  bool ended() const { return ended_; }   // the meta was given
  uint64_t sent() const { return chunks_ + (ended_ ? 1 : 0); }  // chunks that are to be answered

 private:
  absl::Status BeginPass();
  ReplicaMessage Message(ReplicaMessage::Kind kind) const;
  absl::StatusOr<ReplicaMessage> End();

  const std::shared_ptr<Shard> shard_;
  const std::shared_ptr<const void> marks_held_;  // each pass tells what the one before needs
  const Member to_;
  const uint64_t number_;
  const Options options_;
  SnapshotBase base_;
  std::unique_ptr<ShardRowReader> rows_;  // null: between passes
  int passes_ = 0;
  bool holds_ = false;
  bool ended_ = false;
  uint64_t chunks_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_COURSE_H_
