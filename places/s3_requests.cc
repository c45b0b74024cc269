#include "places/s3_requests.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "places/s3_answers.h"

namespace hotbed {
namespace {

constexpr int64_t kDelayNs = kSecondNs / 10;
constexpr int64_t kDelayNsMax = 5 * kSecondNs;
constexpr int64_t kConnectMs = 5000;
constexpr int64_t kContinueMs = 200;              // for a refusal before a large body is sent
constexpr uint64_t kBodyBytesMax = 256ull << 20;  // far above any manifest or listing
constexpr size_t kIdleMax = 16;

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string FirstOf(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = Variable(name); !value.empty()) return value;
  }
  return "";
}

bool TakeHeader(absl::string_view line, absl::string_view name, std::string* value) {
  if (!absl::StartsWithIgnoreCase(line, name)) return false;
  *value = std::string(absl::StripAsciiWhitespace(line.substr(name.size())));
  return true;
}

// Errors of the connection that another try cannot mend.
bool IsFinal(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
         code == CURLE_ABORTED_BY_CALLBACK || code == CURLE_WRITE_ERROR ||
         code == CURLE_OUT_OF_MEMORY || code == CURLE_UNKNOWN_OPTION ||
         code == CURLE_NOT_BUILT_IN || code == CURLE_BAD_FUNCTION_ARGUMENT;
}

}  // namespace

struct S3Requests::Reply {
  S3Answer answer;
  long code = 0;  // of HTTP
  CURLcode result = CURLE_OK;
  std::string error;   // of the connection
  std::string region;  // of the bucket, if the store names it

  bool good() const { return result == CURLE_OK && code >= 200 && code < 300; }
  bool may_pass() const {
    if (result != CURLE_OK) return !IsFinal(result);
    return (code >= 500 && code != 501) || code == 429 || code == 408 ||
           (code == 400 && ErrorIn(answer.body).code == "RequestTimeout");
  }
};

absl::StatusOr<S3Options> S3Options::OfEnvironment() {
  S3Options options;
  options.access_key = Variable("AWS_ACCESS_KEY_ID");
  options.secret_key = Variable("AWS_SECRET_ACCESS_KEY");
  options.session_token = Variable("AWS_SESSION_TOKEN");
  options.ca_file = Variable("AWS_CA_BUNDLE");
  if (options.access_key.empty() || options.secret_key.empty()) {
    return absl::UnauthenticatedError(
        "no credentials for object stores: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and "
        "AWS_REGION, AWS_ENDPOINT_URL) where this process is started, and where the servers are");
  }
  if (std::string region = FirstOf({"AWS_REGION", "AWS_DEFAULT_REGION"}); !region.empty()) {
    options.region = std::move(region);
  }
  options.endpoint = FirstOf({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  while (absl::EndsWith(options.endpoint, "/")) options.endpoint.pop_back();
  if (options.endpoint.empty() || absl::StartsWith(options.endpoint, "http://") ||
      absl::StartsWith(options.endpoint, "https://")) {
    return options;
  }
  return absl::InvalidArgumentError(absl::StrCat("AWS_ENDPOINT_URL is \"", options.endpoint,
                                                 "\"; it begins with http:// or https://"));
}

absl::StatusOr<std::unique_ptr<S3Requests>> S3Requests::Make(S3Options options, const Clock* clock,
                                                             uint64_t seed) {
  HOTBED_ASSIGN_OR_RETURN(const CurlLibrary* const curl, CurlLibrary::Load());
  return std::unique_ptr<S3Requests>(new S3Requests(*curl, std::move(options), clock, seed));
}

S3Requests::~S3Requests() {
  for (CURL* handle : idle_) curl_.cleanup(handle);
}

void S3Requests::Stop() {
  absl::MutexLock lock(&mu_);  // wakes Wait
  stopped_.store(true);
}

absl::StatusOr<S3Answer> S3Requests::Send(const S3Request& request) {
  const int64_t until_ns = clock_.NowNs() + kS3PatienceNs;
  for (int tries = 1;; ++tries) {
    Reply reply = Once(request);
    if (reply.good()) return std::move(reply.answer);
    const bool last = tries == kS3TriesMax || clock_.NowNs() > until_ns || !reply.may_pass();
    if (last || !Wait(tries)) return Failed(request, reply, tries);
  }
}

bool S3Requests::Wait(int tries) {
  absl::MutexLock lock(&mu_);
  const int64_t delay_ns = S3DelayNs(tries, &random_);
  const auto stops = [this] { return stopped_.load(); };
  return !AwaitFor(&mu_, absl::Condition(&stops), absl::Nanoseconds(delay_ns));
}

std::string S3Requests::UrlOf(const S3Request& request) const {
  std::string url;
  const bool in_path = !options_.endpoint.empty() || absl::StrContains(request.bucket, '.');
  if (in_path) {  // a name with dots does not fit the certificate
    url = absl::StrCat(options_.endpoint.empty()
                           ? absl::StrCat("https://s3.", options_.region, ".amazonaws.com")
                           : options_.endpoint,
                       "/", EncodedPath(request.bucket));
  } else {
    url = absl::StrCat("https://", request.bucket, ".s3.", options_.region, ".amazonaws.com");
  }
  if (!request.key.empty() || !in_path) absl::StrAppend(&url, "/", EncodedPath(request.key));
  if (!request.query.empty()) absl::StrAppend(&url, "?", request.query);
  return url;
}

CURL* S3Requests::TakeHandle() {
  absl::MutexLock lock(&mu_);
  if (idle_.empty()) return curl_.init();
  CURL* const handle = idle_.back();
  idle_.pop_back();
  return handle;
}

CURLcode S3Requests::SetUp(CURL* handle, const S3Request& request, const std::string& url,
                           Reply* reply) const {
  CURLcode refused = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    const CURLcode result = curl_.setopt(handle, option, value);
    if (refused == CURLE_OK) refused = result;
  };
  curl_.reset(handle);  // keeps the connection
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, long{kConnectMs});
  set(CURLOPT_EXPECT_100_TIMEOUT_MS, long{kContinueMs});
  if (request.completes) {
    set(CURLOPT_TIMEOUT, long{options_.completion_s});
  } else {
    set(CURLOPT_LOW_SPEED_LIMIT, long{kS3BytesPerSMin});
    set(CURLOPT_LOW_SPEED_TIME, long{options_.silence_s});
  }
  if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
  set(CURLOPT_USERNAME, options_.access_key.c_str());
  set(CURLOPT_PASSWORD, options_.secret_key.c_str());
  set(CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", options_.region, ":s3").c_str());  // copied
  const absl::string_view method = request.method;
  if (method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (method != "GET") {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());  // not copied
    set(CURLOPT_CUSTOMREQUEST, request.method);
  }
  set(CURLOPT_WRITEDATA, reply);
  set(
      CURLOPT_WRITEFUNCTION, +[](char* bytes, size_t size, size_t count, void* to) -> size_t {
        std::string& body = static_cast<Reply*>(to)->answer.body;
        if (body.size() + size * count > kBodyBytesMax) return 0;
        body.append(bytes, size * count);
        return size * count;
      });
  set(CURLOPT_HEADERDATA, reply);
  set(
      CURLOPT_HEADERFUNCTION, +[](char* bytes, size_t size, size_t count, void* to) -> size_t {
        auto& into = *static_cast<Reply*>(to);
        const absl::string_view line(bytes, size * count);
        std::string length;
        TakeHeader(line, "etag:", &into.answer.etag);
        TakeHeader(line, "x-amz-bucket-region:", &into.region);
        if (TakeHeader(line, "content-length:", &length)) {
          (void)absl::SimpleAtoi(length, &into.answer.length);
        }
        return size * count;
      });
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(&stopped_));
  set(
      CURLOPT_XFERINFOFUNCTION,
      +[](void* stopped, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int {
        return static_cast<std::atomic<bool>*>(stopped)->load() ? 1 : 0;
      });
  return refused;
}

S3Requests::Reply S3Requests::Once(const S3Request& request) {
  Reply reply;
  CURL* const handle = TakeHandle();
  const std::string url = UrlOf(request);
  reply.result = SetUp(handle, request, url, &reply);
  curl_slist* headers = nullptr;
  const auto header = [&](absl::string_view name, absl::string_view value) {
    headers = curl_.slist_append(headers, absl::StrCat(name, ": ", value).c_str());
  };
  const std::string checksum = Sha256Hex(request.body);
  header("x-amz-content-sha256", checksum);
  if (request.has_checksum) {
    header("x-amz-checksum-sha256", absl::Base64Escape(absl::HexStringToBytes(checksum)));
  }
  if (!options_.session_token.empty()) header("x-amz-security-token", options_.session_token);
  if (request.range.has_value()) {
    header("range", absl::StrCat("bytes=", request.range->first, "-", request.range->second));
  }
  header("content-type", "application/octet-stream");
  curl_.setopt(handle, CURLOPT_HTTPHEADER, headers);
  std::array<char, CURL_ERROR_SIZE> error = {};
  curl_.setopt(handle, CURLOPT_ERRORBUFFER, error.data());
  if (stopped_.load()) reply.result = CURLE_ABORTED_BY_CALLBACK;
  if (reply.result == CURLE_OK) reply.result = curl_.perform(handle);
  if (reply.result != CURLE_OK) {
    reply.error = error[0] != '\0' ? error.data() : curl_.strerror(reply.result);
  }
  curl_.getinfo(handle, CURLINFO_RESPONSE_CODE, &reply.code);
  curl_.setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  curl_.slist_free_all(headers);
  // The end of an upload may be answered with an error after the status was sent.
  if (reply.good() && request.completes && !ErrorIn(reply.answer.body).code.empty()) {
    reply.code = 500;
  }
  absl::MutexLock lock(&mu_);
  if (idle_.size() < kIdleMax && reply.result == CURLE_OK) {
    idle_.push_back(handle);
  } else {
    curl_.cleanup(handle);
  }
  return reply;
}

absl::Status S3Requests::Failed(const S3Request& request, const Reply& reply, int tries) const {
  const std::string what =
      absl::StrCat(request.method, " s3://", request.bucket, request.key.empty() ? "" : "/",
                   request.key, options_.endpoint.empty() ? "" : " at ", options_.endpoint, ": ");
  const std::string tried = tries > 1 ? absl::StrCat(" (tried ", tries, " times)") : "";
  if (stopped_.load()) return absl::CancelledError(absl::StrCat(what, "this process is stopping"));
  if (reply.result != CURLE_OK) {
    const std::string message = absl::StrCat(what, reply.error, tried);
    return IsFinal(reply.result) ? absl::InvalidArgumentError(message)
                                 : absl::UnavailableError(message);
  }
  const S3Error error = ErrorIn(reply.answer.body);
  std::string message = absl::StrCat(what, "HTTP ", reply.code, error.code.empty() ? "" : " ",
                                     error.code, error.message.empty() ? "" : ": ", error.message);
  if (reply.code >= 300 && reply.code < 400 && !reply.region.empty()) {
    absl::StrAppend(&message, "; the bucket is in another region: set AWS_REGION=", reply.region);
  }
  if (reply.code == 404) return absl::NotFoundError(message);
  if (reply.code == 403) {
    return absl::PermissionDeniedError(absl::StrCat(
        message,
        ". AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION must be those of the "
        "bucket, and may list, read, write and delete in it"));
  }
  if (reply.code == 501) return absl::UnimplementedError(message);
  if (reply.code >= 500 || reply.code == 429 || reply.code == 408) {
    return absl::UnavailableError(absl::StrCat(message, tried));
  }
  return absl::InvalidArgumentError(message);
}

int64_t S3DelayNs(int tries, Random* random) {
  const int64_t most_ns = std::min(kDelayNs << std::min(tries - 1, 20), kDelayNsMax);
  return most_ns / 2 + static_cast<int64_t>(random->Uniform(most_ns / 2));
}

}  // namespace hotbed
