// Uses the public headers only. Exits with 0 if the library is linked and answers.
#include <cstdio>

#include "hotbed/batch.h"
#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "hotbed/push_size.h"
#include "hotbed/schedule.h"

#if defined(GRPC_GRPC_H) || defined(GOOGLE_PROTOBUF_MESSAGE_H__)
#error "a public header shows gRPC or protobuf"
#endif

int main() {
  hotbed::ClientOptions options;
  options.session_name = "install-test";
  const auto client = hotbed::Client::Connect("nowhere", options);
  std::printf("%s\n", client.status().ToString().c_str());
  if (client.status().code() != absl::StatusCode::kInvalidArgument) return 1;

  const auto batch =
      hotbed::JaggedBatch::FromLengths({"product", "user"}, {3, 1, 2, 2}, {1, 2, 1, 5, 2, 3, 4, 1});
  if (!batch.ok() || batch->Offsets().back() != 8) return 2;
  const auto embeddings = hotbed::Embeddings::Create(nullptr, {{.feature = "product"}});
  std::printf("%s\n", embeddings.status().ToString().c_str());
  if (embeddings.ok()) return 3;
  if (hotbed::PlanPush({.constant = 64}, 4096, 2, 0).examples != 32) return 5;
  hotbed::Schedule schedule;
  schedule.warmup_steps = 4;
  return schedule.RateAt(1.0f, 2) == 0.5f ? 0 : 4;
}
