#include "proto/tool_calls.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "proto/health.pb.h"
#include "proto/reflection.pb.h"

namespace hotbed {
namespace {

namespace health = grpc::health::v1;
namespace reflection = grpc::reflection::v1alpha;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

constexpr int kNotFound = 5;  // gRPC's codes
constexpr int kUnimplemented = 12;
constexpr size_t kNameShownMax = 200;

absl::Status DoesNotParse(absl::string_view what, const std::string& message) {
  return absl::InvalidArgumentError(
      absl::StrCat("a ", what, " of ", message.size(), " bytes does not parse"));
}

// The file after all that it imports.
void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>* added,
             reflection::FileDescriptorResponse* response) {
  if (!added->insert(file).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), added, response);
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  response->add_file_descriptor_proto(proto.SerializeAsString());
}

void AnswerFile(const FileDescriptor* file, const std::string& name,
                reflection::ServerReflectionResponse* response) {
  if (file == nullptr) {
    response->mutable_error_response()->set_error_code(kNotFound);
    response->mutable_error_response()->set_error_message(
        absl::StrCat("\"", absl::CEscape(name.substr(0, kNameShownMax)), "\" is not known here"));
    return;
  }
  std::set<const FileDescriptor*> added;
  AddFile(file, &added, response->mutable_file_descriptor_response());
}

}  // namespace

ToolCalls::ToolCalls(std::vector<std::string> services, std::function<bool()> ready,
                     std::map<std::string, Call> calls, std::map<std::string, SlowCall> slow_calls)
    : services_(std::move(services)),
      ready_(std::move(ready)),
      calls_(std::move(calls)),
      slow_calls_(std::move(slow_calls)) {
  services_.push_back(health::HealthCheckRequest::descriptor()->file()->service(0)->full_name());
  services_.push_back(
      reflection::ServerReflectionRequest::descriptor()->file()->service(0)->full_name());
}

namespace {

absl::StatusOr<std::string> BytesOf(const grpc::ByteBuffer& message,
                                    size_t bytes_max = ToolCalls::kMessageBytesMax) {
  if (message.Length() > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a message of ", message.Length(), " bytes, the limit is ", bytes_max));
  }
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return absl::InvalidArgumentError("the message cannot be read");
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ByteBuffer BufferOf(const std::string& answer) {
  const grpc::Slice slice(answer);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

absl::StatusOr<grpc::ByteBuffer> ToolCalls::Answer(absl::string_view method,
                                                   const grpc::ByteBuffer& message) const {
  const auto call = calls_.find(std::string(method));
  if (method != kCheck && !IsStream(method) && call == calls_.end()) {
    return absl::UnimplementedError(absl::StrCat(
        "method \"", absl::CEscape(method.substr(0, kNameShownMax)), "\" is not known here"));
  }
  HOTBED_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(message));
  HOTBED_ASSIGN_OR_RETURN(const std::string answer, call != calls_.end() ? call->second(bytes)
                                                    : method == kCheck   ? Check(bytes)
                                                                         : Reflect(bytes));
  return BufferOf(answer);
}

bool ToolCalls::AnswerLater(
    absl::string_view method, const grpc::ByteBuffer& message, const Caller& caller,
    std::function<void(absl::StatusOr<grpc::ByteBuffer>, std::shared_ptr<const void>)> done) const {
  const auto call = slow_calls_.find(std::string(method));
  if (call == slow_calls_.end()) return false;
  const absl::StatusOr<std::string> bytes = BytesOf(message, call->second.message_bytes_max);
  if (!bytes.ok()) {
    done(bytes.status(), nullptr);
    return true;
  }
  call->second.begin(*bytes, caller,
                     [done = std::move(done)](const absl::StatusOr<std::string>& answer,
                                              std::shared_ptr<const void> held) {
                       if (answer.ok()) return done(BufferOf(*answer), std::move(held));
                       done(answer.status(), std::move(held));
                     });
  return true;
}

absl::StatusOr<std::string> ToolCalls::Check(const std::string& message) const {
  health::HealthCheckRequest request;
  if (!request.ParseFromString(message)) return DoesNotParse("HealthCheckRequest", message);
  const std::string& service = request.service();
  if (!service.empty() &&
      std::find(services_.begin(), services_.end(), service) == services_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "service \"", absl::CEscape(service.substr(0, kNameShownMax)), "\" is not on this port"));
  }
  health::HealthCheckResponse response;
  response.set_status(ready_() ? health::HealthCheckResponse::SERVING
                               : health::HealthCheckResponse::NOT_SERVING);
  return response.SerializeAsString();
}

absl::StatusOr<std::string> ToolCalls::Reflect(const std::string& message) const {
  reflection::ServerReflectionRequest request;
  if (!request.ParseFromString(message)) return DoesNotParse("ServerReflectionRequest", message);
  reflection::ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool* const pool = DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case reflection::ServerReflectionRequest::kListServices: {
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    }
    case reflection::ServerReflectionRequest::kFileByFilename:
      AnswerFile(pool->FindFileByName(request.file_by_filename()), request.file_by_filename(),
                 &response);
      break;
    case reflection::ServerReflectionRequest::kFileContainingSymbol:
      AnswerFile(pool->FindFileContainingSymbol(request.file_containing_symbol()),
                 request.file_containing_symbol(), &response);
      break;
    case reflection::ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      // Extensions, of which there are none, and requests of later versions.
      response.mutable_error_response()->set_error_code(kUnimplemented);
      response.mutable_error_response()->set_error_message(
          "a ServerReflectionRequest asks for nothing known here");
  }
  return response.SerializeAsString();
}

}  // namespace hotbed
