// Channel settings of the data plane, shared by server, client and the bare-gRPC benchmark that
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

// The bandwidth probe matters most: without it the connection's window stays at 64 KiB, however
// large the windows of its streams, and each message costs window updates in both directions. The
// probe gives 2.1 times the messages of 128 KiB, and 0.2 context switches per message instead of 2.
// Large frames and large socket reads keep a message in few pieces.
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

// The longest time for one attempt to connect. An attempt that is given up is made again. TLS gets
// more: where a thousand clients connect at once, a handshake waits for those of the others, and
// all of the work is lost when it is given up.
inline constexpr int kConnectMs = 1000;
inline constexpr int kTlsConnectMs = 5000;
inline void SetConnectTimeout(bool tls, grpc::ChannelArguments* args) {
  args->SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, tls ? kTlsConnectMs : kConnectMs);
}

// Arguments of a client's channel to a shard server. `message_bytes_max` bounds a received reply;
// beyond it gRPC ends the stream, so it has to exceed the limit that Hello announces. Each channel
// gets a connection of its own.
inline grpc::ChannelArguments DataPlaneChannelArguments(int message_bytes_max, bool tls) {
  grpc::ChannelArguments args;
  for (const auto& [name, value] : kDataPlaneArgs) args.SetInt(name, value);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // retries are ours: by session and sequence
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  SetConnectTimeout(tls, &args);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 250);  // finds a restarted server soon
  args.SetMaxReceiveMessageSize(message_bytes_max);
  args.SetMaxSendMessageSize(-1);
  return args;
}

// The same for a grpc::ServerBuilder (a template, so that clients need not link gRPC's server).
template <typename ServerBuilder>
void TuneDataPlaneServer(ServerBuilder* builder, int message_bytes_max) {
  for (const auto& [name, value] : kDataPlaneArgs) builder->AddChannelArgument(name, value);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use must be noticed
  builder->SetMaxReceiveMessageSize(message_bytes_max);
  builder->SetMaxSendMessageSize(-1);
}

// A side that waits for the other checks by HTTP/2 pings that it is there: a peer that is silent
// for ping_ms + silent_ms loses its connection, and a new connection is tried. Without pings a
// broken connection recovers only at TCP's next retransmission, whose delay doubles: a network
// break of 6 s costs up to twice that, and a second such break four times.
struct Keepalive {
  int ping_ms;
  int silent_ms;
};
// Between servers.
inline constexpr Keepalive kPeerKeepalive = {300, 700};
// From clients to servers, and from clients and the CLI to the coordinator. Longer, because a
// server that is merely slow gets all requests in flight a second time.
inline constexpr Keepalive kClientKeepalive = {1000, 2000};
// From servers to the coordinator: well within a lease.
inline constexpr Keepalive kAttendKeepalive = {1000, 1000};

// A peer that is known by name may come back at another address, as a pod does. gRPC would not ask
// for the name again within 30 s.
inline constexpr int kNameAgainMs = 250;

inline void SetKeepalive(const Keepalive& keepalive, grpc::ChannelArguments* args) {
  args->SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kNameAgainMs);
  args->SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.ping_ms);
  args->SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.silent_ms);
  args->SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // also on streams that only receive
}

// Arguments of a server's channel to another server.
inline grpc::ChannelArguments PeerChannelArguments(bool tls) {
  grpc::ChannelArguments args = DataPlaneChannelArguments(1 << 20, tls);
  SetKeepalive(kPeerKeepalive, &args);
  return args;
}

// Lets a grpc::ServerBuilder accept pings at these rates, which gRPC would take for an attack.
template <typename ServerBuilder>
void AllowKeepalives(ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kPeerKeepalive.ping_ms / 2);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

}  // namespace hotbed

#endif  // HOTBED_PROTO_GRPC_TUNING_H_
