#include "cli/cluster/add_server_request.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr int64_t kPollNs = 50'000'000;

std::string RequestPath(const std::string& dir) { return absl::StrCat(dir, "/add-server.request"); }
std::string ReplyPath(const std::string& dir) { return absl::StrCat(dir, "/add-server.reply"); }

// The process that runs a cluster holds its lock.
absl::Status CheckRuns(const std::string& dir) {
  FileSystem* const files = FileSystem::Real();
  const std::string lock_path = absl::StrCat(dir, "/lock");
  if (files->Exists(lock_path) && !files->Lock(lock_path).ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no cluster runs in ", dir, ": 'hotbed up --data-dir ", dir,
                   " --servers N' starts one with as many servers as you say"));
}

absl::StatusOr<AddedServer> ReadReply(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(path));
  HOTBED_RETURN_IF_ERROR(FileSystem::Real()->Delete(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return absl::InternalError(absl::StrCat(path, " is not JSON"));
  const std::string error = json.value("error", "");
  if (!error.empty()) return absl::UnavailableError(error);
  return AddedServer{json.value("name", ""), json.value("coordinator", ""),
                     json.value("address", ""), json.value("admin_address", ""),
                     json.value("log", "")};
}

}  // namespace

nlohmann::ordered_json ToJson(const AddedServer& server) {
  return {{"name", server.name},
          {"coordinator", server.coordinator},
          {"address", server.address},
          {"admin_address", server.admin_address},
          {"log", server.log_path}};
}

absl::StatusOr<AddedServer> AskForServer(const std::string& data_dir, absl::Duration timeout,
                                         const std::function<bool()>& cancelled,
                                         const Clock* clock) {
  HOTBED_RETURN_IF_ERROR(CheckRuns(data_dir));
  FileSystem* const files = FileSystem::Real();
  const std::string request = RequestPath(data_dir), reply = ReplyPath(data_dir);
  if (files->Exists(request)) {
    return absl::AlreadyExistsError(
        absl::StrCat("another server is being added (", request, " is there): try again later"));
  }
  HOTBED_RETURN_IF_ERROR(files->WriteAtomically(request, "{}\n"));
  const int64_t limit_ns = clock->NowNs() + absl::ToInt64Nanoseconds(timeout);
  while (!files->Exists(reply)) {
    const bool stop = cancelled && cancelled();
    if (!stop && clock->NowNs() < limit_ns) {
      clock->SleepNs(kPollNs);
      continue;
    }
    ForgetServerRequests(data_dir);
    if (stop) return absl::CancelledError("interrupted");
    return absl::DeadlineExceededError(absl::StrCat(
        "the 'hotbed up' of ", data_dir, " did not answer within ", absl::FormatDuration(timeout)));
  }
  return ReadReply(reply);
}

void ForgetServerRequests(const std::string& data_dir) {
  std::error_code ignored;  // the file may be gone already
  std::filesystem::remove(RequestPath(data_dir), ignored);
  std::filesystem::remove(ReplyPath(data_dir), ignored);
}

absl::Status AnswerServerRequest(const std::string& data_dir, LocalCluster* cluster) {
  FileSystem* const files = FileSystem::Real();
  if (!files->Exists(RequestPath(data_dir))) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(files->Delete(RequestPath(data_dir)));
  const absl::StatusOr<std::string> added = cluster->AddServer();
  nlohmann::ordered_json reply;
  if (added.ok()) {
    const LocalCluster::Process& process = cluster->processes().back();
    reply = ToJson({process.name, cluster->coordinator_address(), process.address,
                    process.admin_address, process.log_path});
  } else {
    reply = {{"error", std::string(added.status().message())}};
  }
  return files->WriteAtomically(ReplyPath(data_dir), reply.dump(2) + "\n");
}

}  // namespace hotbed
