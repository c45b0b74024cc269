#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "places/place_finder.h"
#include "places/servers_path.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/checkpoint_schedule.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr size_t kPlaceBytesMax = 4096;
constexpr int kScheduleTablesMax = 10'000;

// The place in the form that names are compared in.
absl::StatusOr<std::string> Check(const v1::CheckpointSchedule& schedule) {
  const std::string& place = schedule.place();
  const bool somewhere =
      absl::StartsWith(place, "/") || NamesObjectStore(place) || NamesServersDisks(place);
  if (!somewhere || place.size() > kPlaceBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the place of a schedule is \"", place,
                     "\"; it is an absolute path that every server and coordinator reaches, or "
                     "s3://BUCKET/PREFIX, or server:NAME, of at most ",
                     kPlaceBytesMax, " bytes"));
  }
  if (NamesServersDisks(place) && schedule.incremental()) {
    return absl::InvalidArgumentError(kNoSeriesOnServersDisks);
  }
  if (schedule.every_ms() < kScheduleEveryMsMin || schedule.every_ms() > kScheduleEveryMsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--every is ", schedule.every_ms(), "ms; allowed: 1s to 366 days"));
  }
  if (schedule.keep() > kScheduleKeepMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--keep is ", schedule.keep(), "; allowed: 0..", kScheduleKeepMax));
  }
  if (schedule.tables_size() > kScheduleTablesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a schedule names ", schedule.tables_size(),
                                                   " tables; allowed: ", kScheduleTablesMax));
  }
  if (!schedule.compress().empty() && schedule.compress() != "zstd") {
    return absl::InvalidArgumentError(
        absl::StrCat("--compress is \"", schedule.compress(), "\"; allowed: zstd"));
  }
  return PlacePath(place);
}

std::string Seconds(int64_t ms) { return absl::StrCat(ms / 1000.0, " s"); }

class ScheduleCheckpoints {
 public:
  ScheduleCheckpoints(v1::ScheduleCheckpointsRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    using Request = v1::ScheduleCheckpointsRequest;
    if (!Request::Action_IsValid(request_.action())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "action ", request_.action(), " of a schedule is not known to this coordinator"));
    }
    if (!written_ && request_.action() != Request::SHOW) {
      written_ = true;
      Transaction txn(&state);
      if (request_.action() == Request::SET) {
        const absl::StatusOr<std::string> place = Check(request_.schedule());
        if (!place.ok()) return place.status();
        Set(state, *place, &txn);
      } else if (state.checkpoint_schedule().has_value()) {
        txn.Delete(keys::kCheckpointScheduleKey);
        EventWriter(&state, context_.unix_ms)
            .Add("checkpoint",
                 absl::StrCat("no more saves into ", state.checkpoint_schedule()->place()), 0, 0,
                 &txn);
      }
      if (!txn.empty()) return txn;
    }
    return ShowSchedule(state, context_.unix_ms);
  }

 private:
  // What is known of the last save stays if the place does.
  void Set(const ClusterState& state, const std::string& place, Transaction* txn) const {
    v1::CheckpointSchedule schedule;
    if (state.checkpoint_schedule().has_value() && state.checkpoint_schedule()->place() == place) {
      schedule = *state.checkpoint_schedule();
    }
    const v1::CheckpointSchedule& asked = request_.schedule();
    schedule.set_place(place);
    schedule.set_every_ms(asked.every_ms());
    schedule.set_keep(asked.keep());
    *schedule.mutable_tables() = asked.tables();
    schedule.set_incremental(asked.incremental());
    schedule.set_bytes_per_s(asked.bytes_per_s());
    schedule.set_compress(asked.compress());
    txn->Put(keys::kCheckpointScheduleKey, schedule.SerializeAsString());
    EventWriter(&state, context_.unix_ms)
        .Add("checkpoint",
             absl::StrCat("a save into ", place, " every ", Seconds(asked.every_ms()),
                          asked.keep() == 0 ? "" : absl::StrCat(", ", asked.keep(), " are kept")),
             0, 0, txn);
  }

  const v1::ScheduleCheckpointsRequest request_;
  const OperationContext context_;
  bool written_ = false;
};

class NoteScheduledSave {
 public:
  NoteScheduledSave(ScheduledSave save, const OperationContext& context)
      : save_(std::move(save)), context_(context) {}

  Next operator()(const ClusterState& state) {
    const auto& now = state.checkpoint_schedule();
    if (written_) return ShowSchedule(state, context_.unix_ms);
    written_ = true;
    using Stage = ScheduledSave::Stage;
    const bool other_save = now.has_value() && now->begun_unix_ms() != save_.begun_unix_ms &&
                            save_.stage != Stage::kBegins && save_.stage != Stage::kFolded;
    if (!now.has_value() || now->place() != save_.place || other_save) {
      return absl::AbortedError(absl::StrCat("the schedule of saves into ", save_.place,
                                             " was changed, or another coordinator saves"));
    }
    Transaction txn(&state);
    v1::CheckpointSchedule schedule = *now;
    std::string event;
    switch (save_.stage) {
      case Stage::kBegins:
        schedule.set_begun_unix_ms(save_.begun_unix_ms);
        break;
      case Stage::kSaved:
        event = Saved(&schedule);
        break;
      case Stage::kPruned:
        event = Pruned(&schedule);
        break;
      case Stage::kFolded:
        event = Folded(&schedule);
        break;
    }
    if (!event.empty()) {
      EventWriter(&state, context_.unix_ms).Add("checkpoint", event, 0, 0, &txn);
    }
    txn.Put(keys::kCheckpointScheduleKey, schedule.SerializeAsString());
    return txn;
  }

 private:
  // These return what the event log says.
  std::string Saved(v1::CheckpointSchedule* schedule) const {
    schedule->set_ended_unix_ms(std::max(context_.unix_ms, save_.begun_unix_ms));
    schedule->set_error(save_.error);
    schedule->set_failures(save_.error.empty() ? 0 : schedule->failures() + 1);
    if (!save_.error.empty()) return absl::StrCat("the scheduled save failed: ", save_.error);
    schedule->set_checkpoint(save_.checkpoint);
    schedule->set_saved_unix_ms(save_.begun_unix_ms);
    return absl::StrCat("saved ", save_.checkpoint, " in ",
                        Seconds(context_.unix_ms - save_.begun_unix_ms));
  }
  std::string Pruned(v1::CheckpointSchedule* schedule) const {
    schedule->set_prune_error(save_.error);
    if (!save_.error.empty()) {
      return absl::StrCat("old checkpoints could not be deleted: ", save_.error);
    }
    if (save_.pruned == 0) return "";
    return absl::StrCat("deleted ", save_.pruned, " old checkpoints in ", save_.place);
  }

  std::string Folded(v1::CheckpointSchedule* schedule) const {
    schedule->set_fold_error(save_.error);
    if (save_.error.empty()) return absl::StrCat("folded a series into ", save_.checkpoint);
    return absl::StrCat("checkpoint ", save_.checkpoint, " was not folded: ", save_.error);
  }

  const ScheduledSave save_;
  const OperationContext context_;
  bool written_ = false;
};

}  // namespace

v1::ScheduleCheckpointsReply ShowSchedule(const ClusterState& state, int64_t unix_ms) {
  v1::ScheduleCheckpointsReply reply;
  if (!state.checkpoint_schedule().has_value()) return reply;
  *reply.mutable_schedule() = *state.checkpoint_schedule();
  reply.set_next_unix_ms(NextSaveUnixMs(reply.schedule(), unix_ms));
  return reply;
}

Operation MakeOperation(v1::ScheduleCheckpointsRequest request, const OperationContext& context) {
  return ScheduleCheckpoints(std::move(request), context);
}

Operation MakeOperation(ScheduledSave save, const OperationContext& context) {
  return NoteScheduledSave(std::move(save), context);
}

}  // namespace hotbed
