// Brings the commit of a step to every shard of its tables, and waits until all have applied it.
// Thread-safe.
//
// A commit may be brought any number of times, by any trainer; a shard acts on the first. So what
// is lost or refused for now is simply sent again.
#ifndef HOTBED_CLIENT_TRAINERS_COMMIT_DELIVERY_H_
#define HOTBED_CLIENT_TRAINERS_COMMIT_DELIVERY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/map/control_plane.h"
#include "client/map/table_handle.h"
#include "client/net/client_context.h"
#include "common/ids.h"
#include "proto/control.pb.h"

namespace hotbed {

class CommitDelivery {
 public:
  // `tables`: those that this client has opened, told what the shards answer (read your writes).
  CommitDelivery(ClientContext* context, std::function<std::vector<const TableHandle*>()> tables)
      : context_(context), tables_(std::move(tables)) {}

  // Blocks. DeadlineExceeded names a shard that has not answered, and what it said last; an error
  // that no resend can help is returned as it is. Tables that were dropped are left out.
  absl::Status Deliver(const v1::GroupCommit& commit, const SessionIdentity& identity,
                       int64_t deadline_ns);

 private:
  friend class CommitRequest;
  // Shards that have not answered OK, and what each said last.
  using Open = std::map<ShardId, absl::Status>;
  struct Round;

  Open ShardsOf(const v1::GroupCommit& commit, int64_t deadline_ns);
  // Sends to all of `open` once and waits for the answers.
  absl::Status RunRound(const v1::GroupCommit& commit, const SessionIdentity& identity,
                        int64_t deadline_ns, Open* open, uint32_t* retry_after_ms);
  void Send(const std::string& address, const v1::PushHeader& header,
            const std::shared_ptr<Round>& round);
  absl::Status TakeAnswer(ShardId shard, const v1::SegmentReply& answer, Open* open,
                          uint32_t* retry_after_ms);

  ClientContext* const context_;
  const std::function<std::vector<const TableHandle*>()> tables_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_TRAINERS_COMMIT_DELIVERY_H_
