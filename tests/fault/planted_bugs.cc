// The planted bugs of log and shard, for hotbed-server-planted.
#include "server/shard_log/planted_bugs.h"

#include <sys/uio.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace hotbed {
namespace {

class LateFile : public WritableFile {
 public:
  explicit LateFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  ~LateFile() override { (void)Write(); }

  absl::Status Append(absl::Span<const struct iovec> pieces) override {
    for (const iovec& p : pieces) late_.append(static_cast<const char*>(p.iov_base), p.iov_len);
    return late_.size() < kLateBytes ? absl::OkStatus() : Write();
  }
  absl::Status Sync() override {
    const absl::Status status = Write();
    return status.ok() ? file_->Sync() : status;
  }
  absl::Status Truncate(uint64_t size) override {
    const absl::Status status = Write();
    return status.ok() ? file_->Truncate(size) : status;
  }
  uint64_t size() const override { return file_->size() + late_.size(); }
  absl::Status Close() override {
    const absl::Status status = Write();
    return status.ok() ? file_->Close() : status;
  }

 private:
  static constexpr size_t kLateBytes = 64 << 10;

  absl::Status Write() {
    const iovec piece = {late_.data(), late_.size()};
    const absl::Status status = file_->Append({&piece, 1});
    late_.clear();
    return status;
  }

  std::unique_ptr<WritableFile> file_;
  std::string late_;
};

}  // namespace

bool PlantedBug(const char* name) {
  static const char* const chosen = std::getenv("HOTBED_PLANTED_BUG");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}

std::unique_ptr<WritableFile> MakeLateFile(std::unique_ptr<WritableFile> file) {
  return std::make_unique<LateFile>(std::move(file));
}

}  // namespace hotbed
