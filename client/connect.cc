// Client::Connect: makes a client over real sockets, clock and randomness, or the local engine.
#include <atomic>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/client_impl.h"
#include "client/local_connector.h"
#include "client/net/grpc_control_plane.h"
#include "client/net/grpc_transport.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "security/identity.h"

namespace hotbed {
namespace {

constexpr char kLocal[] = "local:";

std::atomic<LocalConnector> local_connector{nullptr};

absl::StatusOr<std::unique_ptr<Client>> ConnectInProcess(const std::string& directory,
                                                         const ClientOptions& options) {
  const LocalConnector connector = local_connector.load();
  if (connector != nullptr) return connector(directory, options);
  return absl::FailedPreconditionError(
      absl::StrCat("target \"", kLocal, directory,
                   "\": this program has no local engine; link hotbed::client_local"));
}

ClientIdentity IdentityOf(const ClientOptions& options) {
  ClientIdentity identity = {.files = {.certificate = options.tls_certificate,
                                       .key = options.tls_key,
                                       .authority = options.tls_authority},
                             .token_file = options.token_file};
  const bool given = identity.files.any() || !identity.token_file.empty();
  return given ? identity : IdentityOfEnvironment();
}

}  // namespace

void SetLocalConnector(LocalConnector connector) { local_connector.store(connector); }

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& target,
                                                        const ClientOptions& options) {
  HOTBED_RETURN_IF_ERROR(ValidateClientOptions(options));
  absl::string_view address = target;
  if (absl::ConsumePrefix(&address, kLocal)) return ConnectInProcess(std::string(address), options);
  if (!absl::ConsumePrefix(&address, "hotbed://") || !CheckHostPorts(address, 1).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "target \"", target,
        "\" is not of the form hotbed://HOST:PORT (or HOST:PORT,HOST:PORT with several "
        "coordinators) with ports of 1 to 65535, nor local:DIR"));
  }
  const ClientIdentity identity = IdentityOf(options);
  HOTBED_RETURN_IF_ERROR(CheckIdentity(identity));
  std::random_device entropy;
  const uint64_t seed = uint64_t{entropy()} << 32 | entropy();
  auto client =
      std::make_unique<ClientImpl>(options, NewGrpcControlPlane(std::string(address), identity),
                                   NewGrpcTransport(options, identity), Clock::Real(), seed);
  HOTBED_RETURN_IF_ERROR(client->Start());
  return client;
}

}  // namespace hotbed
