// ConnectLocal, and what Client::Connect("local:DIR") calls. Clock and randomness enter here.
#include <filesystem>
#include <map>
#include <random>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/client_impl.h"
#include "client/local_connector.h"
#include "common/status_macros.h"
#include "hotbed/local.h"
#include "local/local_control_plane.h"
#include "local/local_engine.h"
#include "local/local_transport.h"

namespace hotbed {
namespace {

// The engines of this process, by directory.
struct Engines {
  absl::Mutex mu;
  std::map<std::string, std::weak_ptr<LocalEngine>> by_directory ABSL_GUARDED_BY(mu);
};

Engines& AllEngines() {
  static auto* const engines = new Engines;
  return *engines;
}

uint64_t Seed() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

absl::StatusOr<std::shared_ptr<LocalEngine>> EngineOf(const std::string& directory,
                                                      const LocalOptions& options) {
  if (directory.empty()) return LocalEngine::Open(directory, options, Seed());
  std::error_code error;
  const std::string path = std::filesystem::weakly_canonical(directory, error).string();
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("local engine: directory \"", directory, "\": ", error.message()));
  }
  Engines& engines = AllEngines();
  absl::MutexLock lock(&engines.mu);
  std::shared_ptr<LocalEngine> engine = engines.by_directory[path].lock();
  if (engine == nullptr) {
    HOTBED_ASSIGN_OR_RETURN(engine, LocalEngine::Open(path, options, Seed()));
    engines.by_directory[path] = engine;
  }
  return engine;
}

absl::StatusOr<std::unique_ptr<Client>> ConnectWithDefaults(const std::string& directory,
                                                            const ClientOptions& options) {
  return ConnectLocal(directory, LocalOptions(), options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> ConnectLocal(const std::string& directory,
                                                     const LocalOptions& local,
                                                     const ClientOptions& options) {
  HOTBED_RETURN_IF_ERROR(ValidateClientOptions(options));
  HOTBED_ASSIGN_OR_RETURN(std::shared_ptr<LocalEngine> engine, EngineOf(directory, local));
  auto client = std::make_unique<ClientImpl>(options, NewLocalControlPlane(engine),
                                             NewLocalTransport(engine, options.threads),
                                             Clock::Real(), Seed());
  HOTBED_RETURN_IF_ERROR(client->Start());
  return client;
}

// Programs that link this library link this symbol (local/CMakeLists.txt), and with it the line
// that makes Client::Connect know the engine.
extern "C" const bool hotbed_local_engine;
const bool hotbed_local_engine = [] {
  SetLocalConnector(&ConnectWithDefaults);
  return true;
}();

}  // namespace hotbed
