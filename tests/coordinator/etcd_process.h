// An etcd member of a test's own, on loopback, with its data in the test's temporary folder.
#ifndef HOTBED_TESTS_COORDINATOR_ETCD_PROCESS_H_
#define HOTBED_TESTS_COORDINATOR_ETCD_PROCESS_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/file_system.h"
#include "planner/coordinator/etcd/etcd_client.h"
#include "tests/coordinator/process.h"

namespace hotbed {

// A port that was free a moment ago.
inline int PortThatWasFree() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

class EtcdProcess {
 public:
  // `flags` go to etcd. With `files` it is called by TLS, and the flags must name its own.
  explicit EtcdProcess(std::vector<std::string> flags = {}, TlsFiles files = {})
      : flags_(std::move(flags)), files_(std::move(files)) {
    static int number = 0;
    dir_ = absl::StrCat(::testing::TempDir(), "/etcd_", getpid(), "_", ++number);
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    port_ = PortThatWasFree();
    for (int tries = 0; !Start() && tries < 10; ++tries) port_ = PortThatWasFree();
  }
  ~EtcdProcess() {
    process_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  EtcdOptions Options(const std::string& prefix = "") const {
    return {.address = {.members = {address()}, .prefix = prefix}, .files = files_};
  }
  void Kill() { process_.reset(); }
  // Kills it if it runs, and starts it with the same data and port. False: it ended, as when
  // somebody else has taken the port.
  bool Start() {
    process_.reset();
    const std::string scheme = files_.any() ? "https://" : "http://";
    const std::string url = scheme + address();
    std::vector<std::string> args = {
        "etcd", "--name=t", "--data-dir=" + dir_ + "/data", "--listen-client-urls=" + url,
        "--advertise-client-urls=" + url,
        // It is alone, so that nobody calls this.
        "--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls=http://127.0.0.1:1",
        "--initial-cluster=t=http://127.0.0.1:1", "--logger=zap", "--log-level=error",
        "--log-outputs=" + dir_ + "/log"};
    args.insert(args.end(), flags_.begin(), flags_.end());
    process_ = std::make_unique<Process>(std::move(args));
    EtcdOptions options = Options();
    options.timeout = absl::Milliseconds(500);
    EtcdClient client(std::move(options));
    etcdserverpb::RangeRequest request;
    request.set_key("k");
    absl::Status status;
    for (int tries = 0; tries < 100 && process_->Running(); ++tries) {
      status = client.Range(request).status();
      // With users it refuses strangers once it serves.
      if (status.ok() || absl::IsInvalidArgument(status)) return true;
      absl::SleepFor(absl::Milliseconds(50));
    }
    EXPECT_FALSE(process_->Running()) << "etcd does not serve: " << status << "\n" << Log();
    return false;
  }
  std::string Log() const { return FileSystem::Real()->ReadAll(dir_ + "/log").value_or("no log"); }

 private:
  const std::vector<std::string> flags_;
  const TlsFiles files_;
  std::string dir_;
  int port_ = 0;
  std::unique_ptr<Process> process_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_ETCD_PROCESS_H_
