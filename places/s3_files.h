// One object that is written, or read, in large pieces. Thread-compatible; calls block.
#ifndef HOTBED_PLACES_S3_FILES_H_
#define HOTBED_PLACES_S3_FILES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "places/place.h"
#include "places/s3_requests.h"

namespace hotbed {

struct S3Path {
  std::string bucket;
  std::string key;
  std::string text() const;  // s3://bucket/key
};

constexpr uint64_t kS3PartBytes = 8ull << 20;  // the API takes no less than 5 MiB
constexpr size_t kS3PartsMax = 10'000;         // and no more of them
constexpr size_t kS3PartsInFlight = 2;         // of one writer, beside the one that is filled
constexpr uint64_t kS3AheadBytes = 8ull << 20;

// Writes an object in parts: it is not there before Finish, and nothing of it stays if the writer
// is destroyed before. Holds (kS3PartsInFlight + 1) x kS3PartBytes of memory at most.
class S3Writer : public PlaceWriter {
 public:
  static absl::StatusOr<std::unique_ptr<S3Writer>> Begin(S3Path path, S3Requests* requests);
  ~S3Writer() override;
  absl::Status Append(absl::Span<const absl::string_view> pieces) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Finish() override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Part {
    size_t number = 0;  // from 1
    std::string bytes;
  };
  S3Writer(S3Path path, std::string upload, S3Requests* requests)
      : path_(std::move(path)), upload_(std::move(upload)), requests_(*requests) {}
  // Gives the part that was filled to the uploads.
  absl::Status HandOver() ABSL_LOCKS_EXCLUDED(mu_);
  void UploadParts() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::string> Upload(const Part& part);  // its etag
  absl::Status MakeWhole(const std::vector<std::string>& etags);
  void EndUploads() ABSL_LOCKS_EXCLUDED(mu_);

  const S3Path path_;
  const std::string upload_;
  S3Requests& requests_;
  std::string part_;
  size_t parts_ = 0;  // handed over
  uint64_t bytes_ = 0;
  bool finished_ = false;
  std::vector<std::thread> threads_;
  absl::Mutex mu_;
  std::deque<Part> waiting_ ABSL_GUARDED_BY(mu_);
  size_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool ends_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // the first
  std::map<size_t, std::string> etags_ ABSL_GUARDED_BY(mu_);
};

// Reads an object by range: from where the last read ended, and for long reads, kS3AheadBytes at
// once.
class S3Reader : public PlaceReader {
 public:
  static absl::StatusOr<std::unique_ptr<S3Reader>> Open(S3Path path, S3Requests* requests);
  uint64_t size() const override { return size_; }
  absl::StatusOr<uint64_t> ReadAt(uint64_t offset, uint64_t bytes, char* out) override;

 private:
  S3Reader(S3Path path, uint64_t size, S3Requests* requests)
      : path_(std::move(path)), size_(size), requests_(*requests) {}
  absl::Status Fetch(uint64_t offset, uint64_t bytes);

  const S3Path path_;
  const uint64_t size_;
  S3Requests& requests_;
  uint64_t next_ = 0;  // where the last read ended
  uint64_t window_at_ = 0;
  std::string window_;
};

}  // namespace hotbed

#endif  // HOTBED_PLACES_S3_FILES_H_
