// Finds the place that a path names. An object store is asked for its library and credentials
// when the first path names it. Thread-safe.
#ifndef HOTBED_PLACES_PLACE_FINDER_H_
#define HOTBED_PLACES_PLACE_FINDER_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/files/file_system.h"
#include "places/directory_place.h"
#include "places/place.h"
#include "places/s3_place.h"

namespace hotbed {

class PlaceFinder {
 public:
  explicit PlaceFinder(FileSystem* files) : directories_(files) {}
  static PlaceFinder* Real();  // never deleted

  // InvalidArgument: neither an absolute path nor s3://BUCKET/PREFIX. Unauthenticated: there are no
  // credentials for object stores. Unimplemented: there is no libcurl. The result lives as long as
  // the finder.
  absl::StatusOr<Place*> Of(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  // Where server:NAME is from now on; before, such a path is FailedPrecondition.
  void ReachServers(std::unique_ptr<Place> servers) ABSL_LOCKS_EXCLUDED(mu_);
  // Requests to object stores, now and later, fail with Cancelled.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  DirectoryPlace directories_;
  absl::Mutex mu_;
  std::unique_ptr<S3Place> objects_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Place> servers_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

bool NamesObjectStore(absl::string_view path);
// A path as a person writes it, in the one form that every process understands: absolute, without
// "." and a slash at its end. InvalidArgument: an s3:// URL without a bucket, or with a part that
// is empty, "." or ".."; what CheckServersPath says.
absl::StatusOr<std::string> PlacePath(const std::string& written);

}  // namespace hotbed

#endif  // HOTBED_PLACES_PLACE_FINDER_H_
