#include "places/servers/servers_place.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "leader/leader_stub.h"
#include "leader/map_channel.h"
#include "places/servers_path.h"
#include "security/channel_credentials.h"

namespace hotbed {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr uint64_t kReadBytes = 256ull << 10;  // servers answer no more at once
constexpr uint64_t kPutBytes = 32ull << 10;    // requests are of at most 64 KiB
constexpr size_t kNamesPerCall = 200;
constexpr int64_t kServersNsMax = kSecondNs / 2;  // a map may be large

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status Said(const std::string& who, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(who, ": ", status.error_message()));
}

template <typename Request, typename Reply>
absl::Status Call(const std::string& who, v1::Checkpoints::Stub* stub,
                  grpc::Status (v1::Checkpoints::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Reply*),
                  const Request& request, Reply* reply) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(kTimeout));
  return Said(who, (stub->*method)(&context, request, reply));
}

}  // namespace

class ServersPlace::Reader : public PlaceReader {
 public:
  Reader(Server server, std::string path, uint64_t size)
      : server_(std::move(server)), path_(std::move(path)), size_(size) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<uint64_t> ReadAt(uint64_t offset, uint64_t bytes, char* out) override {
    uint64_t done = 0;
    while (done < bytes) {
      v1::ReadFilesRequest request;
      request.set_path(path_);
      request.set_offset(offset + done);
      request.set_bytes(static_cast<uint32_t>(std::min(bytes - done, kReadBytes)));
      HOTBED_ASSIGN_OR_RETURN(const v1::ReadFilesReply reply, Read(server_, request));
      const std::string& content = reply.content();
      if (content.size() > request.bytes()) {
        return absl::DataLossError(absl::StrCat(server_.who, ": too long an answer"));
      }
      std::memcpy(out + done, content.data(), content.size());
      done += content.size();
      if (content.size() < request.bytes()) break;  // the end of the file
    }
    return done;
  }

 private:
  const Server server_;
  const std::string path_;
  const uint64_t size_;
};

std::unique_ptr<ServersPlace> ServersPlace::Of(const std::string& coordinators,
                                               const ClientIdentity& identity) {
  const auto leader =
      std::make_shared<LeaderStub>(coordinators, identity, MapChannelArguments(identity));
  const auto map = [leader, coordinators]() -> absl::StatusOr<v1::ClusterMap> {
    v1::ClusterMap map;
    const grpc::Status status =
        leader->Call(kTimeout, /*patient=*/false,
                     [&](v1::Coordinator::Stub* stub, grpc::ClientContext* context) {
                       return stub->GetClusterMap(context, v1::GetClusterMapRequest(), &map);
                     });
    HOTBED_RETURN_IF_ERROR(Said(absl::StrCat("coordinator at ", coordinators), status));
    return map;
  };
  return std::make_unique<ServersPlace>(map, identity);
}

absl::StatusOr<std::vector<ServersPlace::Server>> ServersPlace::Servers() {
  {
    absl::MutexLock lock(&mu_);
    const bool fresh = Clock::Real()->NowNs() - servers_ns_ < kServersNsMax;
    if (fresh && !servers_.empty()) return servers_;
  }
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, map_());
  std::vector<Server> servers;
  absl::MutexLock lock(&mu_);
  for (const v1::ServerInfo& info : map.servers()) {
    if (!info.live()) continue;
    std::shared_ptr<v1::Checkpoints::Stub>& stub = stubs_[info.address()];
    if (stub == nullptr) {
      stub = v1::Checkpoints::NewStub(grpc::CreateCustomChannel(
          info.address(), ChannelCredentialsOf(identity_), MapChannelArguments(identity_)));
    }
    servers.push_back(
        {info.name(), stub, absl::StrCat("server ", info.name(), " at ", info.address())});
  }
  servers_ = servers;
  servers_ns_ = Clock::Real()->NowNs();
  if (!servers.empty()) return servers;
  return absl::UnavailableError("the cluster has no live server; 'hotbed status' shows them");
}

absl::Status ServersPlace::Change(const Server& server, const v1::ChangeFilesRequest& request) {
  v1::ChangeFilesReply reply;
  return Call(server.who, server.stub.get(), &v1::Checkpoints::Stub::ChangeFiles, request, &reply);
}

absl::StatusOr<v1::ReadFilesReply> ServersPlace::Read(const Server& server,
                                                      const v1::ReadFilesRequest& request) {
  v1::ReadFilesReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call(server.who, server.stub.get(), &v1::Checkpoints::Stub::ReadFiles, request, &reply));
  return reply;
}

absl::Status ServersPlace::Answers::Found(const std::string& path) const {
  if (found > 0) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(wrong);
  HOTBED_RETURN_IF_ERROR(away);
  return absl::NotFoundError(absl::StrCat("no live server has ", path));
}

absl::StatusOr<ServersPlace::Answers> ServersPlace::AskServers(bool first, Ask ask) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<Server> servers, Servers());
  Answers answers;
  for (const Server& server : servers) {
    const absl::Status status = ask(server);
    if (status.ok()) {
      ++answers.found;
      if (first) break;
    } else if (IsAway(status)) {
      answers.away.Update(status);
    } else if (!absl::IsNotFound(status)) {
      answers.wrong.Update(status);
    }
  }
  return answers;
}

absl::StatusOr<std::vector<Place::Entry>> ServersPlace::List(const std::string& folder) {
  v1::ReadFilesRequest request;
  request.set_path(folder);
  request.set_list(true);
  std::map<std::string, uint64_t> found;  // by name
  HOTBED_ASSIGN_OR_RETURN(
      const Answers answers, AskServers(/*first=*/false, [&](const Server& server) -> absl::Status {
        HOTBED_ASSIGN_OR_RETURN(const v1::ReadFilesReply reply, Read(server, request));
        for (const v1::ReadFilesReply::Entry& entry : reply.entries()) {
          found[entry.name()] = entry.bytes();
        }
        return absl::OkStatus();
      }));
  HOTBED_RETURN_IF_ERROR(answers.Found(folder));
  std::vector<Entry> entries;
  for (const auto& [name, bytes] : found) entries.push_back({name, bytes});
  return entries;
}

absl::StatusOr<std::unique_ptr<PlaceReader>> ServersPlace::Open(const std::string& path) {
  v1::ReadFilesRequest request;
  request.set_path(path);
  std::unique_ptr<PlaceReader> reader;
  HOTBED_ASSIGN_OR_RETURN(
      const Answers answers, AskServers(/*first=*/true, [&](const Server& server) -> absl::Status {
        HOTBED_ASSIGN_OR_RETURN(const v1::ReadFilesReply reply, Read(server, request));
        reader = std::make_unique<Reader>(server, path, reply.file_bytes());
        return absl::OkStatus();
      }));
  HOTBED_RETURN_IF_ERROR(answers.Found(path));
  return reader;
}

absl::StatusOr<std::string> ServersPlace::ReadAll(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const auto reader, Open(path));
  std::string content(reader->size(), '\0');
  HOTBED_ASSIGN_OR_RETURN(const uint64_t got, reader->ReadAt(0, content.size(), content.data()));
  content.resize(got);
  return content;
}

absl::StatusOr<bool> ServersPlace::Has(const std::string& path) {
  const absl::Status opened = Open(path).status();
  if (absl::IsNotFound(opened)) return false;
  HOTBED_RETURN_IF_ERROR(opened);
  return true;
}

absl::StatusOr<std::unique_ptr<PlaceWriter>> ServersPlace::Create(const std::string& path) {
  return absl::UnimplementedError(
      absl::StrCat(path,
                   " would be written on a server's own disk, where only the server's saves "
                   "write; bring the checkpoint into a directory first: 'hotbed checkpoint "
                   "fetch'"));
}

absl::Status ServersPlace::Put(const std::string& path, absl::string_view content) {
  const auto put = [&](const Server& server) -> absl::Status {
    for (size_t offset = 0;;) {
      v1::ChangeFilesRequest request;
      request.set_action(v1::ChangeFilesRequest::PUT);
      request.set_path(path);
      request.set_offset(offset);
      request.set_content(std::string(content.substr(offset, kPutBytes)));
      offset += request.content().size();
      request.set_last(offset == content.size());
      HOTBED_RETURN_IF_ERROR(Change(server, request));
      if (request.last()) return absl::OkStatus();
    }
  };
  HOTBED_ASSIGN_OR_RETURN(const Answers answers, AskServers(/*first=*/false, put));
  HOTBED_RETURN_IF_ERROR(answers.wrong);
  return answers.Found(path);
}

absl::Status ServersPlace::Delete(const std::string& folder,
                                  const std::vector<std::string>& files) {
  for (size_t first = 0; first < files.size(); first += kNamesPerCall) {
    v1::ChangeFilesRequest request;
    request.set_action(v1::ChangeFilesRequest::DELETE);
    request.set_path(folder);
    const size_t limit = std::min(files.size(), first + kNamesPerCall);
    for (size_t i = first; i < limit; ++i) request.add_files(files[i]);
    HOTBED_ASSIGN_OR_RETURN(
        const Answers answers,
        AskServers(/*first=*/false, [&](const Server& server) { return Change(server, request); }));
    HOTBED_RETURN_IF_ERROR(answers.wrong);
    HOTBED_RETURN_IF_ERROR(answers.away);
  }
  return absl::OkStatus();
}

absl::Status ServersPlace::MakeFolder(const std::string& folder) {
  v1::ChangeFilesRequest request;
  request.set_action(v1::ChangeFilesRequest::MAKE_FOLDER);
  request.set_path(folder);
  std::vector<Server> made;
  bool refused = false;
  HOTBED_ASSIGN_OR_RETURN(const Answers answers,
                          AskServers(/*first=*/false, [&](const Server& server) {
                            if (refused) return absl::OkStatus();
                            const absl::Status status = Change(server, request);
                            refused = !status.ok() && !IsAway(status);
                            if (status.ok()) made.push_back(server);
                            return status;
                          }));
  if (answers.wrong.ok()) return answers.Found(folder);
  request.set_action(v1::ChangeFilesRequest::DELETE_FOLDER);
  for (const Server& server : made) (void)Change(server, request);
  return answers.wrong;
}

absl::Status ServersPlace::DeleteFolder(const std::string& folder) {
  v1::ChangeFilesRequest request;
  request.set_action(v1::ChangeFilesRequest::DELETE_FOLDER);
  request.set_path(folder);
  HOTBED_ASSIGN_OR_RETURN(
      const Answers answers,
      AskServers(/*first=*/false, [&](const Server& server) { return Change(server, request); }));
  HOTBED_RETURN_IF_ERROR(answers.wrong);
  return answers.away;
}

uint64_t ServersPlace::reader_bytes() const { return 2 * kReadBytes; }

}  // namespace hotbed
