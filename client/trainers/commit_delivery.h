// Delivers the commit of a step to every shard of its tables, and waits until all have applied it.
// Thread-safe.
//
// Any trainer may deliver a commit, any number of times; a shard acts on the first delivery. A
// commit that was lost or refused for now is therefore simply sent again.
#ifndef HOTBED_CLIENT_TRAINERS_COMMIT_DELIVERY_H_
#define HOTBED_CLIENT_TRAINERS_COMMIT_DELIVERY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/map/control_plane.h"
#include "client/map/table_handle.h"
#include "client/net/engine_parts.h"
#include "common/ids.h"
#include "proto/control.pb.h"

namespace hotbed {

class CommitDelivery {
 public:
  // `tables` returns the tables that this client has opened; they note the LSNs that shards answer
  // (read your writes).
  CommitDelivery(const EngineParts& parts, std::function<std::vector<const TableHandle*>()> tables)
      : use_(parts), tables_(std::move(tables)) {}

  // Blocks. DeadlineExceeded names a shard that has not answered, and its last answer; an error
  // that no resend can help is returned as it is. Tables that were dropped are left out.
  absl::Status Deliver(const v1::GroupCommit& commit, const SessionIdentity& identity,
                       int64_t deadline_ns);

 private:
  friend class CommitRequest;
  // The shards that have not answered OK, each with its last answer.
  using Open = std::map<ShardId, absl::Status>;
  struct Round;
  struct Asked {
    ShardId shard;
    Epoch epoch = 0;
  };
  struct ShardAnswer {
    ShardId shard;
    v1::SegmentReply answer;
    Lsn lsn = 0;
  };

  Open ShardsOf(const v1::GroupCommit& commit, int64_t deadline_ns);
  // Sends to all of `open` once, and waits for the answers.
  absl::Status RunRound(const v1::GroupCommit& commit, const SessionIdentity& identity,
                        int64_t deadline_ns, Open* open, uint32_t* retry_after_ms);
  // `head` is the header without groups.
  void Send(const std::string& address, const v1::PushHeader& head, std::vector<Asked> shards,
            const std::shared_ptr<Round>& round);
  absl::Status TakeAnswer(const ShardAnswer& of_shard, Open* open, uint32_t* retry_after_ms);

  const EngineParts use_;
  const std::function<std::vector<const TableHandle*>()> tables_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_TRAINERS_COMMIT_DELIVERY_H_
