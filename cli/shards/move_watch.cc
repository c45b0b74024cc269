#include "cli/shards/move_watch.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/base/interrupt.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "terminal/progress.h"

namespace hotbed {
namespace {

constexpr int64_t kMovePollNs = 200'000'000;
constexpr int64_t kAwayMaxNs = 60'000'000'000;

class Watch {
 public:
  Watch(const CommandContext& context, CoordinatorStub* coordinator,
        const MoveWatchOptions& options, const Clock* clock)
      : coordinator_(coordinator),
        options_(options),
        clock_(clock),
        // In bytes where they are known; a switch to an existing replica transfers nothing.
        by_bytes_(options.work.bytes > 0),
        quiet_(context.json()),
        progress_(context.err, isatty(STDERR_FILENO) != 0, clock, options.label,
                  by_bytes_ ? options.work.bytes : options.work.moves),
        answered_ns_(clock->NowNs()) {}

  absl::Status Run() {
    while (!interrupt_.interrupted()) {
      HOTBED_ASSIGN_OR_RETURN(const bool ended, Look());
      if (ended) {
        if (!quiet_) progress_.Finish(MoveNote(options_.work, All()));
        return absl::OkStatus();
      }
      interrupt_.Sleep(kMovePollNs, clock_);
    }
    const std::string number = options_.number == 0 ? "" : absl::StrCat(" ", options_.number);
    return absl::CancelledError(
        absl::StrCat("interrupted; the moves go on. Watch them: hotbed shard moves --watch", number,
                     ". Stop them: hotbed shard abort", number.empty() ? " --all" : number));
  }

 private:
  MoveProgress All() const {
    MoveProgress all = last_;
    all.moves_done = options_.work.moves;
    all.bytes_done = options_.work.bytes;
    all.waits_for.clear();
    return all;
  }

  // True when the wait is over.
  absl::StatusOr<bool> Look() {
    v1::ListMovesRequest request;
    request.set_number(options_.number);
    const absl::StatusOr<v1::ListMovesReply> list = coordinator_->ListMoves(request);
    if (!list.ok()) return Away(list.status());
    const bool empty = list->moves().empty() && list->moves_total() == 0;
    if ((empty && options_.ended) || map_.cluster_id().empty()) {
      absl::StatusOr<v1::ClusterMap> map = coordinator_->GetClusterMap();
      if (!map.ok()) return Away(map.status());
      map_ = std::move(*map);
    }
    answered_ns_ = clock_->NowNs();
    last_ = ProgressOf(options_.work, *list, map_);
    if (empty) return options_.ended ? options_.ended(map_) : true;
    Show(MoveNote(options_.work, last_));
    return false;
  }

  absl::StatusOr<bool> Away(const absl::Status& status) {
    const bool passing = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    if (!passing || clock_->NowNs() - answered_ns_ > kAwayMaxNs) return status;
    Show("the coordinator does not answer; asking again");
    return false;
  }

  void Show(const std::string& note) {
    if (!quiet_) progress_.Update(by_bytes_ ? last_.bytes_done : last_.moves_done, note);
  }

  CoordinatorStub* const coordinator_;
  const MoveWatchOptions& options_;
  const Clock* const clock_;
  const bool by_bytes_;
  const bool quiet_;
  Progress progress_;
  InterruptScope interrupt_;
  v1::ClusterMap map_;  // for the names
  MoveProgress last_;
  int64_t answered_ns_;
};

}  // namespace

absl::Status WatchMoves(const CommandContext& context, CoordinatorStub* coordinator,
                        const MoveWatchOptions& options, const Clock* clock) {
  return Watch(context, coordinator, options, clock).Run();
}

}  // namespace hotbed
