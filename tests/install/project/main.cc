// Uses the public headers only. Exits with 0 if the library is linked and answers.
#include <cstdio>

#include "hotbed/client.h"

#if defined(GRPC_GRPC_H) || defined(GOOGLE_PROTOBUF_MESSAGE_H__)
#error "a public header shows gRPC or protobuf"
#endif

int main() {
  hotbed::ClientOptions options;
  options.session_name = "install-test";
  const auto client = hotbed::Client::Connect("nowhere", options);
  std::printf("%s\n", client.status().ToString().c_str());
  return client.status().code() == absl::StatusCode::kInvalidArgument ? 0 : 1;
}
