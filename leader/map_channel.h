// Settings of channels over which maps of many thousand shards come, and other long answers of
// coordinators and servers.
//
// Included by files that hold gRPC types only.
#ifndef HOTBED_LEADER_MAP_CHANNEL_H_
#define HOTBED_LEADER_MAP_CHANNEL_H_

#include <grpcpp/support/channel_arguments.h>

#include "proto/grpc_tuning.h"
#include "security/identity.h"

namespace hotbed {

inline grpc::ChannelArguments MapChannelArguments(const ClientIdentity& identity) {
  constexpr int kReplyBytesMax = 256 << 20;  // gRPC's default of 4 MiB is too little for a map
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kReplyBytesMax);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  SetConnectTimeout(identity.files.any(), &args);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  SetKeepalive(kClientKeepalive, &args);
  return args;
}

}  // namespace hotbed

#endif  // HOTBED_LEADER_MAP_CHANNEL_H_
