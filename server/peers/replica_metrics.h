// Counters of the streams to other servers (common/metrics.h); one set per process.
#ifndef HOTBED_SERVER_PEERS_REPLICA_METRICS_H_
#define HOTBED_SERVER_PEERS_REPLICA_METRICS_H_

#include "common/metrics.h"

namespace hotbed {

struct ReplicaMetrics {
  static ReplicaMetrics& Get() {  // never deleted
    static ReplicaMetrics* const metrics = new ReplicaMetrics;
    return *metrics;
  }

  Counter sent_messages{"hotbed_replica_sent_messages_total", "Messages sent to other servers."};
  Counter sent_items{
      "hotbed_replica_sent_items_total",
      "Messages of shards to their replicas: several go in one message on the wire."};
  Counter sent_bytes{"hotbed_replica_sent_bytes_total",
                     "Bytes sent to other servers: log records and snapshot transfers."};
  Counter copied_bytes{"hotbed_replica_copied_bytes_total",
                       "Bytes of rows sent to other servers by snapshot transfers."};
  Counter dropped_items{
      "hotbed_replica_dropped_items_total",
      "Messages of shards that will be sent again: a stream broke, or the queue of a "
      "server was full."};
  Counter overflows{"hotbed_replica_queue_overflows_total",
                    "Times that the queue of a server was full."};
  Counter streams_opened{"hotbed_replica_streams_opened_total", "Streams opened to other servers."};
  Counter streams_broken{"hotbed_replica_streams_broken_total",
                         "Streams to other servers that ended, and failed attempts."};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_REPLICA_METRICS_H_
