#include "server/data_server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "ports/grpc_hand_over.h"
#include "proto/grpc_tuning.h"
#include "proto/tool_calls.h"
#include "security/server_credentials.h"
#include "server/kernels/cpu_kernels.h"
#include "server/net/tool_stream.h"
#include "server/peers/replica_batch.h"
#include "server/peers/replica_link.h"
#include "server/peers/transfer_stream.h"
#include "server/streams/pull_stream.h"
#include "server/streams/push_stream.h"
#include "server/streams/raw_data_service.h"

namespace hotbed {
namespace {

constexpr int kLookupsWaitingPerQueue = 8;  // unary ones come in crowds
constexpr int64_t kStuckNs = 10'000'000'000;
constexpr int64_t kGraceMsMax = 200;
constexpr int64_t kStopStepNs = 1'000'000;

// gRPC ends a stream whose message is larger than this, so it is well above the limit beyond which
// a message is refused with a reply. The port closes the connection on which one is announced.
int ReceiveBytesMax(uint64_t message_bytes_max) {
  return static_cast<int>(std::min<uint64_t>(8 * message_bytes_max, 1u << 30));
}

std::vector<std::string> ServicesOf(const DataServerOptions& options) {
  std::set<std::string> services = {"hotbed.v1.Data", "hotbed.v1.Replica"};
  for (const auto& [method, call] : options.calls) {  // "/package.Service/Method"
    services.insert(method.substr(1, method.rfind('/') - 1));
  }
  for (const auto& [method, call] : options.slow_calls) {
    services.insert(method.substr(1, method.rfind('/') - 1));
  }
  return {services.begin(), services.end()};
}

void CollectGauges(const DataPlane& plane, const PeerPlane& peers,
                   std::vector<MetricSample>* samples) {
  const auto add = [samples](const char* name, const char* help, Labels labels, double value) {
    AddSample(name, help, std::move(labels), value, samples);
  };
  constexpr char kInFlight[] = "hotbed_server_in_flight_bytes";
  constexpr char kInFlightHelp[] = "Bytes of requests and answers in flight, by budget.";
  add(kInFlight, kInFlightHelp, {{"budget", "pull"}}, plane.pull_budget.in_flight());
  add(kInFlight, kInFlightHelp, {{"budget", "lookup"}}, plane.lookup_budget.in_flight());
  add(kInFlight, kInFlightHelp, {{"budget", "push"}}, plane.push_budget.in_flight());
  constexpr char kLimit[] = "hotbed_server_in_flight_limit_bytes";
  constexpr char kLimitHelp[] = "The size of that budget.";
  add(kLimit, kLimitHelp, {{"budget", "pull"}}, plane.pull_budget.bytes_max());
  add(kLimit, kLimitHelp, {{"budget", "lookup"}}, plane.lookup_budget.bytes_max());
  add(kLimit, kLimitHelp, {{"budget", "push"}}, plane.push_budget.bytes_max());
  add("hotbed_server_kernels_info",
      "Always 1; the labels say which row kernels this processor runs, and how they fetch rows.",
      {{"fetch", kFetchWay.name}, {"instructions", CpuKernels().name}}, 1);
  add("hotbed_server_push_waiting_bytes", "Bytes of pushes that wait for room in their budget.", {},
      plane.push_budget.waiting_bytes());
  add("hotbed_server_answer_pool_bytes", "Memory held for answers, in use or not.", {},
      plane.answers->pooled_bytes());
  constexpr char kHeld[] = "hotbed_replica_received_held_bytes";
  constexpr char kHeldHelp[] =
      "Bytes received from other servers and not yet applied or written, by kind.";
  add(kHeld, kHeldHelp, {{"kind", "log"}}, peers.budget->log_bytes());
  add(kHeld, kHeldHelp, {{"kind", "rows"}}, peers.budget->rows_bytes());
  add("hotbed_server_streams", "Pull and push streams open.", {}, plane.streams.load());
}

}  // namespace

struct DataServer::Impl {
  // One polling thread. `begun` and `ended` count events; only their difference and their changes
  // matter.
  struct alignas(64) Loop {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
    uint64_t seen = 0;
    int64_t seen_ns = 0;
    std::thread thread;
  };

  Impl(const DataServerOptions& options, ShardHost* host, const Clock* clock)
      : plane(options.limits, host, clock),
        peers(options.peer_limits, options.limits.write_timeout_ms, host),
        tools(
            ServicesOf(options), options.ready ? options.ready : [] { return true; }, options.calls,
            options.slow_calls),
        gauges(
            [this](std::vector<MetricSample>* samples) { CollectGauges(plane, peers, samples); }) {
    for (ByteBudget* budget : Budgets()) {
      budget->SetHandOver([this, budget] { AskForGrants(budget); });
      budget->SetShed([this](const std::string& peer) {
        port->connections().End(peer, EndReason::kUnreadAnswers);
      });
    }
  }

  std::array<ByteBudget*, 3> Budgets() {
    return {&plane.pull_budget, &plane.lookup_budget, &plane.push_budget};
  }

  void AskForGrants(ByteBudget* budget) {
    absl::MutexLock lock(&watch_mu);
    wants_grants.push_back(budget);
  }

  // Ticks streams and waiting requests, and makes the grants that would keep a polling thread busy
  // for too long.
  void Watch() {
    const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(watch_mu) {
      return watch_stops || !wants_grants.empty();
    };
    for (;;) {
      std::vector<ByteBudget*> budgets;
      {
        absl::MutexLock lock(&watch_mu);
        AwaitFor(&watch_mu, absl::Condition(&awake), absl::Milliseconds(StreamWatch::kTickMs));
        if (watch_stops) return;
        budgets.swap(wants_grants);
      }
      for (ByteBudget* budget : budgets) budget->GrantMore();
      const int64_t now_ns = plane.clock->NowNs();
      if (now_ns - ticked_ns < StreamWatch::kTickMs * 1'000'000) continue;
      ticked_ns = now_ns;
      plane.watch.Tick(now_ns);
      peers.watch.Tick(now_ns);
      for (ByteBudget* budget : Budgets()) budget->Expire(now_ns);
    }
  }

  void Poll(grpc::ServerCompletionQueue* queue, Loop* loop) {
    void* tag = nullptr;
    bool ok = false;
    while (queue->Next(&tag, &ok)) {
      loop->begun.store(loop->begun.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      {
        const ReplicaBatch batch;
        static_cast<RpcTag*>(tag)->Run(ok);
      }
      loop->ended.store(loop->ended.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }

  DataPlane plane;
  PeerPlane peers;
  RawDataService service;
  RawReplicaService replica_service;
  grpc::AsyncGenericService other_calls;
  const ToolCalls tools;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  std::unique_ptr<GrpcReplicaNetwork> network;
  std::unique_ptr<Port> port;
  std::unique_ptr<grpc::Server> server;
  std::vector<std::unique_ptr<Loop>> loops;
  std::thread watch;
  int64_t ticked_ns = 0;  // used by the watch's thread only
  absl::Mutex watch_mu;
  bool watch_stops ABSL_GUARDED_BY(watch_mu) = false;
  std::vector<ByteBudget*> wants_grants ABSL_GUARDED_BY(watch_mu);  // each at most once
  absl::Mutex mu;
  bool stopped ABSL_GUARDED_BY(mu) = false;
  MetricSource gauges;  // last: it reads both planes
};

DataServer::DataServer() = default;

absl::StatusOr<std::unique_ptr<DataServer>> DataServer::Start(const DataServerOptions& options,
                                                              ShardHost* host, const Clock* clock) {
  PortOptions port_options = options.port;
  port_options.limits.http2.message_bytes_max = ReceiveBytesMax(options.limits.message_bytes_max);
  port_options.limits.encrypted = options.security.files.any();
  port_options.access_version = options.security.access_version();
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<Port> port, Port::Open(port_options, clock));
  auto data_server = std::unique_ptr<DataServer>(new DataServer);
  data_server->impl_ = std::make_unique<Impl>(options, host, clock);
  Impl& impl = *data_server->impl_;

  impl.port = std::move(port);
  data_server->address_ = impl.port->address();

  grpc::ServerBuilder builder;
  TuneDataPlaneServer(&builder, ReceiveBytesMax(options.limits.message_bytes_max));
  GuardServer({.quota_bytes = options.grpc_bytes_max}, &builder);
  const std::shared_ptr<CallAccess> access = CallAccess::Of(options.security, port_options.name);
  impl.plane.tables_of = TableAccessBy(access);
  std::function<void(int)> hand_over =
      HandOverTo(&builder, ServerCredentialsOf(options.security, access));
  AllowKeepalives(&builder);
  builder.RegisterService(&impl.service);
  builder.RegisterService(&impl.replica_service);
  builder.RegisterAsyncGenericService(&impl.other_calls);
  // gRPC has one poller for all queues: the thread that finds a message hands it to the thread of
  // its queue. Clients on the same machine, and the thread pool, use the other half of the cores.
  const int half = std::max(1u, std::thread::hardware_concurrency() / 2);
  const int threads = options.threads > 0 ? options.threads : half;
  for (int i = 0; i < threads; ++i) impl.queues.push_back(builder.AddCompletionQueue());
  impl.server = builder.BuildAndStart();
  HOTBED_CHECK(impl.server != nullptr) << "gRPC does not start";
  std::vector<grpc::CompletionQueue*> queues;
  for (auto& queue : impl.queues) queues.push_back(queue.get());
  impl.network = std::make_unique<GrpcReplicaNetwork>(options.peer_streams, &impl.peers.inbox,
                                                      clock, std::move(queues));

  for (auto& queue : impl.queues) {
    PullStream::Start(RequestKind::kPull, &impl.plane, &impl.service, queue.get());
    PushStream::Start(&impl.plane, &impl.service, queue.get());
    TransferStream::Start(&impl.peers, &impl.replica_service, queue.get());
    ToolStream::Start(&impl.tools, &impl.plane.tables_of, &impl.other_calls, queue.get());
    for (int i = 0; i < kLookupsWaitingPerQueue; ++i) {
      PullStream::Start(RequestKind::kLookup, &impl.plane, &impl.service, queue.get());
    }
  }
  for (int i = 0; i < threads; ++i) {
    impl.loops.push_back(std::make_unique<Impl::Loop>());
    Impl::Loop* const loop = impl.loops.back().get();
    loop->thread =
        std::thread([&impl, loop, queue = impl.queues[i].get()] { impl.Poll(queue, loop); });
  }
  impl.watch = std::thread([&impl] { impl.Watch(); });
  impl.port->Serve(std::move(hand_over));
  return data_server;
}

DataServer::~DataServer() {
  if (!impl_->loops.empty()) Stop(0);
}

const DataPlane& DataServer::plane() const { return impl_->plane; }
ByteBudget* DataServer::pull_budget() { return &impl_->plane.pull_budget; }

const PeerPlane& DataServer::peers() const { return impl_->peers; }

ConnectionTable& DataServer::connections() { return impl_->port->connections(); }

bool DataServer::PortAnswers(std::string* why_not) const { return impl_->port->Answers(why_not); }

ReplicaNetwork* DataServer::network() { return impl_->network.get(); }

bool DataServer::Healthy(std::string* why_not) {
  absl::MutexLock lock(&impl_->mu);
  const int64_t now_ns = impl_->plane.clock->NowNs();
  for (auto& loop : impl_->loops) {
    const uint64_t begun = loop->begun.load(std::memory_order_relaxed);
    const bool idle = loop->ended.load(std::memory_order_relaxed) == begun;
    if (idle || begun != loop->seen) {
      loop->seen = begun;
      loop->seen_ns = now_ns;
    } else if (now_ns - loop->seen_ns > kStuckNs) {
      *why_not = "a polling thread of the data port has been at one event for over 10 s";
      return false;
    }
  }
  return impl_->stopped || impl_->port->Answers(why_not);
}

void DataServer::Stop(int64_t wait_ms) {
  {
    // Not longer: Healthy() is asked meanwhile, and must not wait.
    absl::MutexLock lock(&impl_->mu);
    if (impl_->stopped) return;
    impl_->stopped = true;
  }
  DataPlane& plane = impl_->plane;
  plane.draining.store(true);
  const int64_t until_ns = plane.clock->NowNs() + wait_ms * 1'000'000;
  const auto in_flight = [](const ByteBudget* budget) { return budget->in_flight() > 0; };
  while (absl::c_any_of(impl_->Budgets(), in_flight) && plane.clock->NowNs() < until_ns) {
    plane.clock->SleepNs(kStopStepNs);
  }
  impl_->port->Stop();
  // Answers that were just written get some time to reach their readers before the streams are cut.
  const auto grace = std::chrono::milliseconds(std::min(wait_ms, kGraceMsMax));
  impl_->server->Shutdown(std::chrono::system_clock::now() + grace);
  impl_->network->Stop();
  // No call may touch a queue that is shut down, and the host has yet to finish the requests in
  // flight.
  while (plane.calls.load() > 0 || impl_->peers.calls.load() > 0) {
    plane.clock->SleepNs(kStopStepNs);
  }
  for (auto& queue : impl_->queues) queue->Shutdown();
  for (auto& loop : impl_->loops) loop->thread.join();
  {
    absl::MutexLock watch_lock(&impl_->watch_mu);
    impl_->watch_stops = true;
  }
  impl_->watch.join();
}

}  // namespace hotbed
