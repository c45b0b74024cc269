// The state that all pull and push streams and lookups of one server share. Thread-safe after
// construction.
#ifndef HOTBED_SERVER_STREAMS_DATA_PLANE_H_
#define HOTBED_SERVER_STREAMS_DATA_PLANE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "common/clock.h"
#include "security/table_access.h"
#include "server/host/shard_host.h"
#include "server/net/answer_pool.h"
#include "server/net/byte_budget.h"
#include "server/net/connection_accounts.h"
#include "server/net/stream_watch.h"
#include "server/streams/slow_requests.h"
#include "server/streams/stream_tables.h"

namespace hotbed {

struct DataPlaneLimits {
  uint64_t message_bytes_max = 16ull << 20;  // per request and per answer
  uint32_t messages_in_flight_max = 64;      // per stream
  // Per stream; never more than a quarter of either budget below, so that a client that does not
  // read its answers leaves room for the others. Lookups have such a quarter for all of their
  // streams: there the budget alone leaves room (byte_budget.h). One message may be larger, alone
  // on its stream.
  uint64_t stream_bytes_in_flight_max = 64ull << 20;
  uint64_t pull_bytes_in_flight_max = 256ull << 20;  // all pull streams and lookups: answers
  uint64_t push_bytes_in_flight_max = 256ull << 20;  // all push streams: requests
  // Pushes that wait for the budget, in addition to those in flight: they are in memory already.
  uint64_t push_bytes_waiting_max = 64ull << 20;
  int64_t write_timeout_ms = 10'000;  // a client that reads nothing for this long loses its stream
  uint32_t streams_max = 4096;        // pulls and pushes; connections_max bounds lookups
  uint32_t requests_waiting_max = 4096;  // for a budget; beyond it RESOURCE_EXHAUSTED
  uint32_t segments_max = 16384;         // per message
  uint32_t retry_after_ms = 20;          // sent with RESOURCE_EXHAUSTED and UNAVAILABLE
  int64_t slow_request_ms = 0;  // requests that take longer are logged (slow_requests.h); 0: none
};

struct DataPlane {
  DataPlane(const DataPlaneLimits& limits, ShardHost* host, const Clock* clock)
      : limits(Shared(limits)),
        host(host),
        clock(clock),
        slow(limits.slow_request_ms, clock, SlowRequests::CoarseClock()),
        pull_budget(limits.pull_bytes_in_flight_max - LookupBytes(limits),
                    limits.requests_waiting_max),
        lookup_budget(LookupBytes(limits), limits.requests_waiting_max),
        push_budget(limits.push_bytes_in_flight_max, limits.requests_waiting_max,
                    limits.push_bytes_waiting_max),
        // Slices live slightly longer than the budget counts them: until the kernel has taken their
        // bytes.
        answers(AnswerPool::Create(limits.pull_bytes_in_flight_max,
                                   host != nullptr ? host->answer_pinner() : nullptr)) {}

  // Lookups have a quarter for themselves, which pulls cannot take from them.
  static uint64_t LookupBytes(const DataPlaneLimits& limits) {
    return limits.pull_bytes_in_flight_max / 4;
  }
  StreamTables TablesOf(const grpc::ServerContextBase& context, const char* method) const {
    return tables_of ? StreamTables(tables_of(context, method)) : StreamTables();
  }
  static DataPlaneLimits Shared(DataPlaneLimits limits) {
    limits.stream_bytes_in_flight_max = std::max<uint64_t>(
        1, std::min({limits.stream_bytes_in_flight_max, limits.pull_bytes_in_flight_max / 4,
                     limits.push_bytes_in_flight_max / 4}));
    return limits;
  }

  const DataPlaneLimits limits;
  ShardHost* const host;
  const Clock* const clock;
  SlowRequests slow;
  // Before the budgets' users: it outlives them.
  ConnectionAccounts accounts;
  ByteBudget pull_budget;
  ByteBudget lookup_budget;
  ByteBudget push_budget;
  const std::shared_ptr<AnswerPool> answers;
  StreamWatch watch;
  TableAccessOf tables_of;  // set before the first call; empty: every caller may use every table
  std::atomic<bool> draining{false};  // new messages are answered UNAVAILABLE
  std::atomic<uint32_t> streams{0};   // open now
  std::atomic<uint64_t> calls{0};     // call objects alive, including those that wait for a client
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_DATA_PLANE_H_
