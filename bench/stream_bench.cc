// Compares the data port with bare gRPC streams of the same bytes and the same raw client, in the
// same run.
//
//   stream_bench [--dir=DIR] [--rounds=5] [--seconds=1] [--threads=0] [--only=PART]
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/ratio_table.h"
#include "bench/roofs/peer_process.h"
#include "bench/roofs/roofs.h"
#include "bench/roofs/stream_client.h"
#include "bench/stream_bench_peer.h"
#include "common/ids.h"
#include "common/process_tuning.h"
#include "proto/data.pb.h"
#include "proto/grpc_tuning.h"
#include "proto/wire.h"

namespace hotbed::bench {
namespace {

using roofs::PeerProcess;
using roofs::StreamClient;

constexpr int kInFlight = 8;
constexpr int kBatches = 256;
constexpr SessionId kPusher = 2;

struct Arguments {
  std::string dir = "/tmp";
  int rounds = 5;
  double seconds = 1.0;
  int threads = 0;
  std::string only;  // part of the names of the measures to run; empty: all
};

struct Peer {
  std::unique_ptr<PeerProcess> process;
  std::unique_ptr<grpc::GenericStub> stub;
};

Peer Start(const std::vector<std::string>& args) {
  Peer peer;
  peer.process = PeerProcess::Start(args).value();
  peer.stub = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", peer.process->port()), grpc::InsecureChannelCredentials(),
      DataPlaneChannelArguments(256 << 20, /*tls=*/false)));
  return peer;
}

// Unique ids, equally many of each shard, so that segments have equal lengths.
class Batches {
 public:
  explicit Batches(uint64_t ids) : per_shard_(ids / kShards) {
    std::mt19937_64 random(1);
    std::vector<uint64_t> of_shard(kRowsPerShard);
    for (int b = 0; b < kBatches; ++b) {
      std::vector<uint64_t> batch;
      for (uint32_t s = 0; s < kShards; ++s) {
        const uint64_t start = random() % kRowsPerShard;
        const uint64_t stride = 2 * (random() % 50'000) + 1;  // odd: visits no row twice too soon
        for (uint64_t i = 0; i < per_shard_; ++i) {
          batch.push_back(s * kRowsPerShard + (start + i * stride) % kRowsPerShard);
        }
      }
      batches_.push_back(std::move(batch));
    }
  }
  uint64_t per_shard() const { return per_shard_; }
  grpc::Slice ids(uint64_t n) const {
    const std::vector<uint64_t>& batch = batches_[n % kBatches];
    return grpc::Slice(
        const_cast<uint64_t*>(batch.data()), batch.size() * 8, [](void*) {}, nullptr);
  }

 private:
  const uint64_t per_shard_;
  std::vector<std::vector<uint64_t>> batches_;
};

grpc::ByteBuffer PullMessage(const Batches& batches, uint64_t n) {
  v1::PullHeader header;
  if (n == 0) header.mutable_hello()->set_wire_version(kWireVersion);
  header.set_request(n);
  v1::PullGroup* const group = header.add_groups();
  group->set_table(kTable);
  for (uint32_t s = 0; s < kShards; ++s) group->add_shards(s);
  group->add_epochs(kEpoch);
  group->add_id_counts(static_cast<uint32_t>(batches.per_shard()));
  std::string head;
  AppendHeaderField(header, &head);
  AppendBulkTag(v1::PullRequest::kIdsFieldNumber, 8 * kShards * batches.per_shard(), &head);
  const grpc::Slice slices[] = {grpc::Slice(head), batches.ids(n)};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer PushMessage(const Batches& batches, const std::vector<float>& gradients,
                             uint64_t n) {
  v1::PushHeader header;
  if (n == 0) header.mutable_hello()->set_wire_version(kWireVersion);
  header.set_request(n);
  header.set_session(kPusher);
  header.set_incarnation(1);
  v1::PushGroup* const group = header.add_groups();
  group->set_table(kTable);
  group->set_step(n + 1);
  for (uint32_t s = 0; s < kShards; ++s) group->add_shards(s);
  group->add_epochs(kEpoch);
  group->add_id_counts(static_cast<uint32_t>(batches.per_shard()));
  group->add_distances(n == 0 ? 0 : 1 << 20);
  group->add_opens(n == 0);
  group->add_last_parts(true);
  group->add_dims(kDim);
  const uint64_t ids = kShards * batches.per_shard();
  std::string head;
  AppendHeaderField(header, &head);
  AppendBulkTag(v1::PushRequest::kIdsFieldNumber, 8 * ids, &head);
  std::string tag;
  AppendBulkTag(v1::PushRequest::kGradientsFieldNumber, 4 * kDim * ids, &tag);
  const grpc::Slice slices[] = {
      grpc::Slice(head), batches.ids(n), grpc::Slice(tag),
      grpc::Slice(
          const_cast<float*>(gradients.data()), 4 * kDim * ids, [](void*) {}, nullptr)};
  return grpc::ByteBuffer(slices, 4);
}

// Parses the whole reply only sometimes, so that the measurement is not that of the client.
template <typename Reply>
bool Good(const grpc::ByteBuffer& raw, uint64_t rows_bytes, uint64_t* seen) {
  if (++*seen % 1024 != 1) return raw.Length() > rows_bytes;
  grpc::Slice slice;
  Reply reply;
  if (!raw.DumpToSingleSlice(&slice).ok() || !reply.ParseFromArray(slice.begin(), slice.size())) {
    return false;
  }
  const bool good = reply.header().code() == v1::OK && reply.header().segments() == kShards &&
                    reply.header().exceptions_size() == 0;
  if (!good) std::fprintf(stderr, "%s\n", reply.header().DebugString().c_str());
  return good;
}

Work ServeWith(StreamClient* client, uint64_t rows) {
  return [client, rows] {
    constexpr uint64_t kMessages = 64;
    if (!client->Serve(kMessages)) {
      std::fprintf(stderr, "stream_bench: a stream ended\n");
      std::exit(1);
    }
    return static_cast<double>(kMessages * rows);
  };
}

// `request_bytes` and `reply_bytes` are those of our own messages.
void Compare(const std::string& name, double bar, uint64_t rows, StreamClient* ours,
             uint64_t request_bytes, uint64_t reply_bytes, const Arguments& arguments,
             RatioTable* table) {
  if (!absl::StrContains(name, arguments.only)) return;
  const Peer roof = Start({"grpc", absl::StrCat(reply_bytes), absl::StrCat(arguments.threads)});
  const std::vector<uint8_t> bytes(request_bytes, 1);
  const grpc::Slice slice(
      const_cast<uint8_t*>(bytes.data()), bytes.size(), [](void*) {}, nullptr);
  const grpc::ByteBuffer message(&slice, 1);
  StreamClient bare(
      roof.stub.get(), "/hotbed.Roof/Stream", kInFlight, [&](uint64_t) { return message; },
      [](const grpc::ByteBuffer&) { return true; });
  table->Measure({.name = name, .roof = "bare gRPC", .unit = "rows/s", .bar = bar},
                 ServeWith(ours, rows), ServeWith(&bare, rows));
}

void Run(const Arguments& arguments) {
  RatioTable table(arguments.rounds, arguments.seconds);
  const std::vector<float> gradients(2048 * kDim, 1e-3f);
  for (const std::string durability : {"checkpoint", "log"}) {
    const std::string dir = absl::StrCat(arguments.dir, "/hotbed-stream-bench-", durability);
    std::filesystem::remove_all(dir);
    const Peer peer = Start({kDataServerPeer, dir, durability, absl::StrCat(arguments.threads)});
    uint64_t seen = 0;
    for (const uint64_t ids : {512, 2048}) {
      if (durability == "log") break;  // pulls do not see it
      const Batches batches(ids);
      StreamClient pull(
          peer.stub.get(), "/hotbed.v1.Data/Pull", kInFlight,
          [&](uint64_t n) { return PullMessage(batches, n); },
          [&](const grpc::ByteBuffer& reply) {
            return Good<v1::PullReply>(reply, ids * kDim * 4, &seen);
          });
      Compare(absl::StrCat("pull ", ids, " x 64 fp32"), ids == 512 ? 0.65 : 0.50, ids, &pull,
              PullMessage(batches, 1).Length(), ids * kDim * 4 + 200, arguments, &table);
    }
    const Batches batches(512);
    StreamClient push(
        peer.stub.get(), "/hotbed.v1.Data/Push", kInFlight,
        [&](uint64_t n) { return PushMessage(batches, gradients, n); },
        [&](const grpc::ByteBuffer& reply) { return Good<v1::PushReply>(reply, 0, &seen); });
    Compare(absl::StrCat("push 512 x 64 fp32, class ", durability),
            durability == "log" ? 0.0 : 0.80, 512, &push,
            PushMessage(batches, gradients, 1).Length(), 200, arguments, &table);
    std::filesystem::remove_all(dir);
  }
  table.Print();
}

}  // namespace
}  // namespace hotbed::bench

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  using hotbed::roofs::kPeerArgument;
  if (argc > 2 && std::strcmp(argv[1], kPeerArgument) == 0 &&
      std::strcmp(argv[2], hotbed::bench::kDataServerPeer) == 0) {
    return hotbed::bench::ServeData(std::vector<std::string>(argv + 3, argv + argc));
  }
  if (const auto code = hotbed::roofs::ServeIfAsked(argc, argv)) return *code;
  hotbed::bench::Arguments arguments;
  CLI::App app;
  app.add_option("--dir", arguments.dir);
  app.add_option("--rounds", arguments.rounds)->check(CLI::PositiveNumber);
  app.add_option("--seconds", arguments.seconds);
  app.add_option("--threads", arguments.threads);
  app.add_option("--only", arguments.only);
  CLI11_PARSE(app, argc, argv);
  hotbed::bench::Run(arguments);
  return 0;
}
