// An inference program: the serving client alone. Exits with 0 if it is linked and answers.
#include "hotbed/serving.h"

#include <cstdio>

#if defined(GRPC_GRPC_H) || defined(GOOGLE_PROTOBUF_MESSAGE_H__)
#error "a public header shows gRPC or protobuf"
#endif

int main() {
  const auto client = hotbed::ServingClient::Connect("nowhere");
  std::printf("%s\n", client.status().ToString().c_str());
  if (client.status().code() != absl::StatusCode::kInvalidArgument) return 1;
  const auto nobody = hotbed::ServingClient::Connect("hotbed://127.0.0.1:1",
                                                     {.connect_timeout = absl::Milliseconds(50)});
  std::printf("%s\n", nobody.status().ToString().c_str());
  return nobody.ok() ? 2 : 0;
}
