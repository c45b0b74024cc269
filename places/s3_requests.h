// Requests of S3's API (signature version 4), with retries. A request is repeated after errors that
// pass, with a growing delay of random length, at most kS3TriesMax times and for kS3PatienceNs.
// A connection on which nothing moves for kS3SilenceS seconds is given up. Thread-safe; calls
// block.
#ifndef HOTBED_PLACES_S3_REQUESTS_H_
#define HOTBED_PLACES_S3_REQUESTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/random.h"
#include "places/curl_library.h"

namespace hotbed {

constexpr int kS3TriesMax = 8;
constexpr int64_t kS3PatienceNs = 60 * kSecondNs;
constexpr long kS3BytesPerSMin = 1024;

struct S3Options {
  std::string endpoint;  // http://... or https://..., which has all buckets; empty: AWS
  std::string region = "us-east-1";
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // may be empty
  std::string ca_file;        // empty: the system's authorities
  int silence_s = 20;
  int completion_s = 600;

  // By the variables that AWS's tools have (docs/checkpoints.md). Unauthenticated: no credentials;
  // InvalidArgument: the endpoint is no URL.
  static absl::StatusOr<S3Options> OfEnvironment();
};

struct S3Request {
  const char* method = "GET";
  std::string bucket;
  std::string key;    // empty: the bucket
  std::string query;  // QueryOf
  absl::string_view body;
  std::optional<std::pair<uint64_t, uint64_t>> range;  // first and last byte
  bool has_checksum = false;  // says the body's in a header of its own, too
  bool completes = false;     // the store may think for minutes
};

struct S3Answer {
  std::string body;
  std::string etag;
  uint64_t length = 0;  // that the answer names; of HEAD, the object's
};

class S3Requests {
 public:
  // Unimplemented: there is no libcurl. `seed` is for the delays.
  static absl::StatusOr<std::unique_ptr<S3Requests>> Make(S3Options options, const Clock* clock,
                                                          uint64_t seed);
  ~S3Requests();

  // NotFound; PermissionDenied, Unimplemented, InvalidArgument: the store refuses it; Unavailable
  // after the last try; Cancelled: stopped. The message names method, URL and the store's words.
  absl::StatusOr<S3Answer> Send(const S3Request& request) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Reply;
  S3Requests(const CurlLibrary& curl, S3Options options, const Clock* clock, uint64_t seed)
      : curl_(curl), options_(std::move(options)), clock_(*clock), random_(seed) {}
  std::string UrlOf(const S3Request& request) const;
  // The reply of one try; its `error` is empty if the store answered at all.
  Reply Once(const S3Request& request) ABSL_LOCKS_EXCLUDED(mu_);
  // The first option that libcurl refuses ends the request: it might go out without a signature.
  CURLcode SetUp(CURL* handle, const S3Request& request, const std::string& url,
                 Reply* reply) const;
  absl::Status Failed(const S3Request& request, const Reply& reply, int tries) const;
  // False: stopped.
  bool Wait(int tries) ABSL_LOCKS_EXCLUDED(mu_);
  CURL* TakeHandle() ABSL_LOCKS_EXCLUDED(mu_);

  const CurlLibrary& curl_;
  const S3Options options_;
  const Clock& clock_;
  std::atomic<bool> stopped_{false};
  absl::Mutex mu_;
  Random random_ ABSL_GUARDED_BY(mu_);
  std::vector<CURL*> idle_ ABSL_GUARDED_BY(mu_);  // with their connections
};

// How long to wait before the try after `tries`: a random part, at least half, of 0.1 s doubled for
// each, and of 5 s at most.
int64_t S3DelayNs(int tries, Random* random);

}  // namespace hotbed

#endif  // HOTBED_PLACES_S3_REQUESTS_H_
