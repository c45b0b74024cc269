// The checkpoints on this server's own disk (places/servers_path.h), for clients that list, fetch
// and delete them (proto/checkpoint.proto). Rows come there by SaveJobs.
//
// A thread of its own does the work; calls wait in a queue. The memory of an answer counts against
// ChangeMemory until the answer has left. Thread-safe; Read and Change do not block.
#ifndef HOTBED_SERVER_EXPORT_OWN_DISK_H_
#define HOTBED_SERVER_EXPORT_OWN_DISK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/files/file_system.h"
#include "proto/checkpoint.pb.h"
#include "proto/tool_calls.h"
#include "server/shard/change_feed.h"

namespace hotbed {

constexpr uint32_t kOwnDiskReadBytesMax = 256 << 10;  // of one answer
constexpr size_t kOwnDiskCallsMax = 64;               // that wait

// On the thread that calls. InvalidArgument: a path that leads elsewhere; NotFound: nothing is
// there.
absl::StatusOr<v1::ReadFilesReply> ReadOwnFiles(const std::string& root,
                                                const v1::ReadFilesRequest& request,
                                                FileSystem* files);
absl::Status ChangeOwnFiles(const std::string& root, const v1::ChangeFilesRequest& request,
                            FileSystem* files);
// Makes the folder of a checkpoint, durably. AlreadyExists.
absl::Status MakeOwnFolder(const std::string& root, const std::string& path, FileSystem* files);

class OwnDisk {
 public:
  // `root` is made by the first save.
  OwnDisk(std::string root, std::shared_ptr<ChangeMemory> memory, FileSystem* files);
  ~OwnDisk() { Stop(); }

  void Read(const v1::ReadFilesRequest& request, ToolCalls::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  void Change(const v1::ChangeFilesRequest& request, ToolCalls::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls in progress are answered.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    std::function<absl::StatusOr<std::string>()> answer;
    uint64_t bytes = 0;  // of memory
    ToolCalls::Done done;
  };
  void Enter(Waiting call) ABSL_LOCKS_EXCLUDED(mu_);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  void Answer(const Waiting& call) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string root_;
  const std::shared_ptr<ChangeMemory> memory_;
  FileSystem* const files_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_OWN_DISK_H_
