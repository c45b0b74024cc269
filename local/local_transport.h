// The client's transport to the shard host of a local engine: requests take the way of a server's
// streams from the parsed message on, and answers are read where the host wrote them. Thread-safe.
//
// A thread of the transport does the work, or the caller that waits for a Future. With more threads
// (ClientOptions::threads), several messages are worked on at a time, and callers only wait. Pushes
// reach the host in the order of Send.
#ifndef HOTBED_LOCAL_LOCAL_TRANSPORT_H_
#define HOTBED_LOCAL_LOCAL_TRANSPORT_H_

#include <memory>

#include "client/net/transport.h"
#include "local/local_engine.h"

namespace hotbed {

std::unique_ptr<Transport> NewLocalTransport(std::shared_ptr<LocalEngine> engine, int threads);

}  // namespace hotbed

#endif  // HOTBED_LOCAL_LOCAL_TRANSPORT_H_
