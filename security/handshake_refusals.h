// What gRPC says of handshakes that its ports refuse, since nobody else hears of them.
#ifndef HOTBED_SECURITY_HANDSHAKE_REFUSALS_H_
#define HOTBED_SECURITY_HANDSHAKE_REFUSALS_H_

namespace hotbed {

// From now on each is counted and logged as other refusals are (security/refusals.h), as port
// "tls". Further errors of gRPC are logged, at most one per 10 seconds. For daemons: a process has
// one such place. May be called again.
void TellHandshakeRefusals();

}  // namespace hotbed

#endif  // HOTBED_SECURITY_HANDSHAKE_REFUSALS_H_
