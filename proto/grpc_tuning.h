// The channel settings of the data plane, one place for server, client and the bare-gRPC roof that
// they are measured against. Figures are from bench/roofs on two cores over loopback.
//
// Included by files that hold gRPC types only.
#ifndef HOTBED_PROTO_GRPC_TUNING_H_
#define HOTBED_PROTO_GRPC_TUNING_H_

#include <grpc/grpc.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

namespace hotbed {

// The bandwidth probe decides: without it the connection's window stays at 64 KiB, whatever the
// streams' is, and each message costs window updates back and forth (with it 2.1 times the messages
// of 128 KiB, 0.2 context switches a message in place of 2). Large frames and large reads of the
// socket make a message few pieces rather than many.
inline constexpr std::pair<const char*, int> kDataPlaneArgs[] = {
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},
    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20},
    {GRPC_ARG_HTTP2_BDP_PROBE, 1},
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20},
    {GRPC_ARG_TCP_READ_CHUNK_SIZE, 256 << 10},
    {GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 32 << 10},
    {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 1 << 20},
    {GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0},
    {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
    {GRPC_ARG_ENABLE_CENSUS, 0},
    {GRPC_ARG_ENABLE_CHANNELZ, 0},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
};

// Arguments of a client's channel to a shard server. `message_bytes_max` bounds an answer that is
// received; beyond it gRPC ends the stream, so it stands above what Hello announces. Each channel
// gets a connection of its own.
inline grpc::ChannelArguments DataPlaneChannelArguments(int message_bytes_max) {
  grpc::ChannelArguments args;
  for (const auto& [name, value] : kDataPlaneArgs) args.SetInt(name, value);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // retries are ours: by session and sequence
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
              1000);  // also the longest time for one attempt to connect
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 250);  // a server that is back is found at once
  args.SetMaxReceiveMessageSize(message_bytes_max);
  args.SetMaxSendMessageSize(-1);
  return args;
}

// The same for a grpc::ServerBuilder (a template, so that clients need not link the server).
template <typename ServerBuilder>
void TuneDataPlaneServer(ServerBuilder* builder, int message_bytes_max) {
  for (const auto& [name, value] : kDataPlaneArgs) builder->AddChannelArgument(name, value);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use must be noticed
  builder->SetMaxReceiveMessageSize(message_bytes_max);
  builder->SetMaxSendMessageSize(-1);
}

// Whoever waits for another's word asks by pings of HTTP/2 whether it is there: one that says
// nothing for ping_ms + silent_ms loses its connection, and a new one is tried. Without that a
// connection over which nothing came for a while is only as good as TCP's next try, which is as far
// away again as the silence was long: a network that is whole after 6 s is waited for twice as
// long, and after a second such break four times.
struct Keepalive {
  int ping_ms;
  int silent_ms;
};
// Servers of each other.
inline constexpr Keepalive kPeerKeepalive = {300, 700};
// Clients of servers; clients, and people, of the coordinator. Longer: a server that is merely slow
// is sent all that was on its way once more.
inline constexpr Keepalive kClientKeepalive = {1000, 2000};
// Servers of the coordinator: well within a lease.
inline constexpr Keepalive kAttendKeepalive = {1000, 1000};

inline void SetKeepalive(const Keepalive& keepalive, grpc::ChannelArguments* args) {
  args->SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.ping_ms);
  args->SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.silent_ms);
  args->SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // also of those who only listen
}

// Arguments of a server's channel to another.
inline grpc::ChannelArguments PeerChannelArguments() {
  grpc::ChannelArguments args = DataPlaneChannelArguments(1 << 20);
  SetKeepalive(kPeerKeepalive, &args);
  return args;
}

// Tells a grpc::ServerBuilder that clients may ping this often: it does not take that for an
// attack.
template <typename ServerBuilder>
void AllowKeepalives(ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kPeerKeepalive.ping_ms / 2);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

}  // namespace hotbed

#endif  // HOTBED_PROTO_GRPC_TUNING_H_
