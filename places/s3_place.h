// An object store as a place for checkpoints, by S3's API. The path s3://BUCKET/KEY names an
// object; a folder is there as long as an object is below it.
#ifndef HOTBED_PLACES_S3_PLACE_H_
#define HOTBED_PLACES_S3_PLACE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "places/place.h"
#include "places/s3_answers.h"
#include "places/s3_files.h"
#include "places/s3_requests.h"

namespace hotbed {

class S3Place : public Place {
 public:
  static absl::StatusOr<std::unique_ptr<S3Place>> Make(S3Options options);

  absl::StatusOr<std::vector<Entry>> List(const std::string& folder) override;
  absl::StatusOr<bool> Has(const std::string& path) override;
  absl::StatusOr<std::string> ReadAll(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<PlaceReader>> Open(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<PlaceWriter>> Create(const std::string& path) override;
  absl::Status Put(const std::string& path, absl::string_view content) override;
  absl::Status Delete(const std::string& folder, const std::vector<std::string>& files) override;
  absl::Status MakeFolder(const std::string& folder) override;
  absl::Status DeleteFolder(const std::string& folder) override;
  absl::StatusOr<uint64_t> EndUnfinished(const std::string& folder,
                                         int64_t before_unix_ms) override;
  uint64_t writer_bytes() const override { return (kS3PartsInFlight + 1) * kS3PartBytes; }
  uint64_t reader_bytes() const override { return 2 * kS3AheadBytes; }
  void Stop() { requests_->Stop(); }

 private:
  explicit S3Place(std::unique_ptr<S3Requests> requests) : requests_(std::move(requests)) {}
  // Lists the keys that begin with `prefix`, page by page; `delimiter` may be empty.
  absl::Status ListPages(const S3Path& path, const std::string& prefix,
                         const std::string& delimiter,
                         absl::FunctionRef<void(const S3Listing& page)> visit);
  absl::Status DeleteKeys(const std::string& bucket, absl::Span<const std::string> keys);
  absl::StatusOr<uint64_t> EndUploads(const S3Path& path, int64_t before_unix_ms);
  // Files of saves in folders without a mark or manifest: a server wrote them when the folder had
  // been deleted.
  absl::StatusOr<uint64_t> DeleteStrays(const S3Path& path, int64_t before_unix_ms);

  const std::unique_ptr<S3Requests> requests_;
};

}  // namespace hotbed

#endif  // HOTBED_PLACES_S3_PLACE_H_
