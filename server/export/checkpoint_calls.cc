#include "server/export/checkpoint_calls.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/checkpoint.pb.h"
#include "server/export/row_life.h"
#include "server/export/row_reads.h"

namespace hotbed {
namespace {

template <typename Request>
absl::Status DoesNotParse(const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat("a ", Request::descriptor()->name(), " of ",
                                                 message.size(), " bytes does not parse"));
}

template <typename Request, typename Reply>
ToolCalls::Call Parsed(std::function<absl::StatusOr<Reply>(const Request&)> answer) {
  return [answer = std::move(answer)](const std::string& message) -> absl::StatusOr<std::string> {
    Request request;
    if (!request.ParseFromString(message)) return DoesNotParse<Request>(message);
    HOTBED_ASSIGN_OR_RETURN(const Reply reply, answer(request));
    return reply.SerializeAsString();
  };
}

}  // namespace

v1::WatchRestoreReply RestoreState(const ShardHost& host, TableId table) {
  const ShardHost::RestoreProgress progress = host.Restores(table);
  v1::WatchRestoreReply reply;
  reply.set_bytes_read(progress.bytes_read);
  for (const auto& [shard, error] : progress.shards) {
    v1::RestoringShard& one = *reply.add_shards();
    one.set_shard(shard.packed());
    one.set_error(std::string(error.message()));
    one.set_code(static_cast<uint32_t>(error.code()));
  }
  return reply;
}

std::map<std::string, ToolCalls::Call> CheckpointCalls(SaveJobs* saves, const ShardHost* host) {
  std::map<std::string, ToolCalls::Call> calls;
  calls["/hotbed.v1.Checkpoints/BeginSave"] = Parsed<v1::BeginSaveRequest, v1::BeginSaveReply>(
      [saves](const v1::BeginSaveRequest& request) -> absl::StatusOr<v1::BeginSaveReply> {
        HOTBED_RETURN_IF_ERROR(saves->Begin(request));
        return v1::BeginSaveReply();
      });
  calls["/hotbed.v1.Checkpoints/WatchSave"] = Parsed<v1::WatchSaveRequest, v1::WatchSaveReply>(
      [saves](const v1::WatchSaveRequest& request) { return saves->Watch(request); });
  calls["/hotbed.v1.Checkpoints/WatchRestore"] =
      Parsed<v1::WatchRestoreRequest, v1::WatchRestoreReply>(
          [host](const v1::WatchRestoreRequest& request) -> absl::StatusOr<v1::WatchRestoreReply> {
            return RestoreState(*host, request.table());
          });
  return calls;
}

namespace {

template <typename Request>
using Begins =
    std::function<void(const Request& request, const ToolCalls::Caller& caller, ToolCalls::Done)>;

template <typename Request>
ToolCalls::SlowCall ParsedSlow(Begins<Request> begin) {
  return {[begin = std::move(begin)](const std::string& message, const ToolCalls::Caller& caller,
                                     ToolCalls::Done done) {
    Request request;
    if (!request.ParseFromString(message)) return done(DoesNotParse<Request>(message), nullptr);
    begin(request, caller, std::move(done));
  }};
}

// Whether the shard is here; an error if its caller may not read its table, which only a shard that
// is here names. Who may read all tables is not asked: true.
absl::StatusOr<bool> MayRead(const ShardHost& host, uint64_t packed,
                             const ToolCalls::MayUse& may_use) {
  if (!may_use) return true;
  const std::shared_ptr<Shard> shard = host.Find(ShardId::FromPacked(packed));
  if (shard == nullptr) return false;
  HOTBED_RETURN_IF_ERROR(may_use(ShardHost::TableNameOf(*shard)));
  return true;
}

// What may be listed; nothing: the shard is elsewhere. It stays so where the shard comes here
// meanwhile, since nobody has decided about its table.
void ListAllowed(const v1::ListRowsRequest& request, const ShardHost& host,
                 const ToolCalls::Caller& caller, RowLists* lists, ToolCalls::Done done) {
  const absl::StatusOr<bool> here = MayRead(host, request.shard(), caller.may_use);
  if (!here.ok()) return done(here.status(), nullptr);
  if (*here) return lists->List(request, caller.connection, std::move(done));
  v1::ListRowsReply reply;
  reply.set_elsewhere(true);
  done(reply.SerializeAsString(), nullptr);
}

// On a thread that reads lists.
template <typename Reply>
void RunAmongLists(RowLists* lists, ToolCalls::Done done,
                   std::function<absl::StatusOr<Reply>()> make) {
  // Shared: whoever does not run it must answer all the same.
  const auto answer = std::make_shared<ToolCalls::Done>(std::move(done));
  const bool runs = lists->Run([answer, make = std::move(make)] {
    const absl::StatusOr<Reply> reply = make();
    if (!reply.ok()) return (*answer)(reply.status(), nullptr);
    (*answer)(reply->SerializeAsString(), nullptr);
  });
  if (runs) return;
  (*answer)(absl::ResourceExhaustedError("too many calls read rows of this server"), nullptr);
}

// The same of a call for many shards: one that is not here is asked for by a range that none has,
// and so is told to be elsewhere, while the others are answered.
template <typename Request>
absl::StatusOr<Request> Allowed(Request request, const ShardHost& host,
                                const ToolCalls::MayUse& may_use) {
  if (!may_use) return request;
  for (auto& shard : *request.mutable_shards()) {
    HOTBED_ASSIGN_OR_RETURN(const bool here, MayRead(host, shard.shard(), may_use));
    if (!here) shard.set_range_limit(shard.range_first());
  }
  return request;
}

}  // namespace

std::map<std::string, ToolCalls::SlowCall> RowCalls(const ShardHost* host, RowLists* lists,
                                                    ChangeReads* changes, TopKCalls* top_k) {
  std::map<std::string, ToolCalls::SlowCall> calls;
  calls["/hotbed.v1.Changes/ListRows"] = ParsedSlow<v1::ListRowsRequest>(
      [host, lists](const v1::ListRowsRequest& request, const ToolCalls::Caller& caller,
                    ToolCalls::Done done) {
        ListAllowed(request, *host, caller, lists, std::move(done));
      });
  calls["/hotbed.v1.Changes/ReadChanges"] = ParsedSlow<v1::ReadChangesRequest>(
      [host, changes](const v1::ReadChangesRequest& request, const ToolCalls::Caller& caller,
                      ToolCalls::Done done) {
        const absl::StatusOr<v1::ReadChangesRequest> allowed =
            Allowed(request, *host, caller.may_use);
        if (!allowed.ok()) return done(allowed.status(), nullptr);
        changes->Read(*allowed, caller.connection, std::move(done));
      });
  calls["/hotbed.v1.Changes/ReadRows"] = ParsedSlow<v1::ReadRowsRequest>(
      [host, lists, changes](const v1::ReadRowsRequest& request, const ToolCalls::Caller& caller,
                             ToolCalls::Done done) {
        const absl::StatusOr<v1::ReadRowsRequest> allowed = Allowed(request, *host, caller.may_use);
        if (!allowed.ok()) return done(allowed.status(), nullptr);
        RunAmongLists<v1::ReadRowsReply>(lists, std::move(done), [host, changes, read = *allowed] {
          return AnswerReadRows(*host, changes->memory(), read);
        });
      });
  calls["/hotbed.v1.Changes/RowLife"] = ParsedSlow<v1::RowLifeRequest>(
      [host, lists](const v1::RowLifeRequest& request, const ToolCalls::Caller& caller,
                    ToolCalls::Done done) {
        const absl::StatusOr<bool> here = MayRead(*host, request.shard(), caller.may_use);
        if (!here.ok()) return done(here.status(), nullptr);
        v1::RowLifeReply elsewhere;
        elsewhere.set_elsewhere(true);
        if (!*here) return done(elsewhere.SerializeAsString(), nullptr);
        RunAmongLists<v1::RowLifeReply>(lists, std::move(done), [host, request] {
          return AnswerRowLife(*host, request, [] { return absl::OkStatus(); });
        });
      });
  calls["/hotbed.v1.Search/TopK"] = ParsedSlow<v1::TopKRequest>(
      [host, top_k](const v1::TopKRequest& request, const ToolCalls::Caller& caller,
                    ToolCalls::Done done) {
        const absl::StatusOr<bool> here = MayRead(*host, request.shard(), caller.may_use);
        if (!here.ok()) return done(here.status(), nullptr);
        if (*here) return top_k->TopK(request, std::move(done));
        v1::TopKReply reply;
        reply.set_elsewhere(true);
        done(reply.SerializeAsString(), nullptr);
      });
  return calls;
}

std::map<std::string, ToolCalls::SlowCall> FileCalls(OwnDisk* disk) {
  std::map<std::string, ToolCalls::SlowCall> calls;
  calls["/hotbed.v1.Checkpoints/ReadFiles"] = ParsedSlow<v1::ReadFilesRequest>(
      [disk](const v1::ReadFilesRequest& request, const ToolCalls::Caller&, ToolCalls::Done done) {
        disk->Read(request, std::move(done));
      });
  calls["/hotbed.v1.Checkpoints/ChangeFiles"] = ParsedSlow<v1::ChangeFilesRequest>(
      [disk](const v1::ChangeFilesRequest& request, const ToolCalls::Caller&,
             ToolCalls::Done done) { disk->Change(request, std::move(done)); });
  return calls;
}

}  // namespace hotbed
