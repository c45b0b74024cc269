// Copies that are refused: as a whole, or a record of the primary that is damaged or of what the
// shard cannot hold.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

// One that was damaged on its way comes whole the next time. One that the primary has so in its
// memory, or that is above a limit of this server, never does, and pushes wait for it meanwhile.
constexpr int kRecordTriesMax = 10;

}  // namespace

// Asks for it once more at once; after that the primary asks by itself, some ticks after it heard
// nothing, so that what is refused again and again is not sent without end.
void Shard::RefuseRecord(const Member& from, const ReplicaMessage& message, size_t taken,
                         const std::string& error) {
  HOTBED_LOG_EVERY_S(Error, 1) << error;
  options_.replica_budget->messages_refused.fetch_add(1, std::memory_order_relaxed);
  const Lsn lsn = message.prev_lsn + taken + 1;
  const bool next = from == core_.record().primary && message.epoch == core_.epoch() &&
                    lsn == core_.last_lsn() + 1;
  if (next && error_state_.ok()) {
    untaken_times_ = lsn == untaken_lsn_ ? untaken_times_ + 1 : 1;
    untaken_lsn_ = lsn;
    if (untaken_times_ >= kRecordTriesMax) {
      FailEverything(absl::DataLossError(absl::StrCat(
          error, " (", untaken_times_, " times); a new copy of all rows takes its place")));
      HOTBED_LOG(Error) << this->error();
      options_.outlet->HasNews();
      return Drain();
    }
    if (untaken_times_ > 1) return;
  }
  CoreSend again;
  again.kind = CoreSend::Kind::kAppendReply;
  again.to = from;
  again.reply.epoch = message.epoch;
  again.reply.lsn = lsn - 1;
  again.reply.prev_lsn = CoreAppendReply::kUnasked;
  SendNow(again);
}

bool Shard::CopyLost(const ShardRecord& record, const Member& self) const {
  if (!refused()) return false;
  const auto names = [&self](const std::vector<Member>& members) {
    return std::find(members.begin(), members.end(), self) != members.end();
  };
  const bool counted = record.epoch <= refused_promise_.load(std::memory_order_relaxed);
  return names(record.members) || (counted && names(record.learners));
}

// Not in an epoch in which it may have acknowledged anything: its primary may have told that it
// holds everything, and it be made a member while its rows are half a copy.
bool Shard::MayBeReplaced(Epoch epoch) const {
  if (error_state_.ok() || epoch != core_.epoch()) return false;
  const std::vector<Member>& learners = core_.record().learners;
  const bool learns = std::find(learners.begin(), learners.end(), self_) != learners.end();
  return learns && !CopyLost(core_.record(), self_);
}

}  // namespace hotbed
