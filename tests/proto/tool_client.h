// What a general gRPC tool asks of a port: its health, its services, their files.
#ifndef HOTBED_TESTS_PROTO_TOOL_CLIENT_H_
#define HOTBED_TESTS_PROTO_TOOL_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <string>
#include <vector>

#include "google/protobuf/descriptor.pb.h"
#include "proto/health.grpc.pb.h"
#include "proto/reflection.grpc.pb.h"

namespace hotbed {

class ToolClient {
 public:
  explicit ToolClient(const std::string& address)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}

  // "SERVING" or "NOT_SERVING", else the words of the error.
  std::string Health(const std::string& service) {
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status =
        grpc::health::v1::Health::NewStub(channel_)->Check(&context, request, &response);
    if (!status.ok()) return status.error_message();
    return grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
  }

  // The full names of all messages and services in the file of `symbol` and in those it imports,
  // and before them the services listed; on one stream.
  std::vector<std::string> Reflect(const std::string& symbol) {
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto stream =
        grpc::reflection::v1alpha::ServerReflection::NewStub(channel_)->ServerReflectionInfo(
            &context);
    grpc::reflection::v1alpha::ServerReflectionRequest request;
    grpc::reflection::v1alpha::ServerReflectionResponse response;
    std::vector<std::string> names;
    request.set_list_services("*");
    if (!stream->Write(request) || !stream->Read(&response)) return {"no answer"};
    for (const auto& service : response.list_services_response().service()) {
      names.push_back(service.name());
    }
    // Tools ask for extensions too, by fields that this port does not know.
    request.clear_message_request();
    if (!stream->Write(request) || !stream->Read(&response) || !response.has_error_response()) {
      return {"an unknown request ends the stream"};
    }
    request.set_file_containing_symbol(symbol);
    if (!stream->Write(request) || !stream->Read(&response)) return {"no second answer"};
    if (response.has_error_response()) names.push_back(response.error_response().error_message());
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      if (!file.ParseFromString(bytes)) return {"a file that does not parse"};
      for (const auto& service : file.service())
        names.push_back(file.package() + "." + service.name());
      for (const auto& message : file.message_type()) {
        names.push_back(file.package() + "." + message.name());
      }
    }
    stream->WritesDone();
    if (const grpc::Status status = stream->Finish(); !status.ok()) return {status.error_message()};
    return names;
  }

 private:
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  }

  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_PROTO_TOOL_CLIENT_H_
