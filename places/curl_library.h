// libcurl, loaded when a process first talks to an object store: the library brings some twenty
// others with it, and most processes never need them. Thread-safe.
#ifndef HOTBED_PLACES_CURL_LIBRARY_H_
#define HOTBED_PLACES_CURL_LIBRARY_H_

#include <curl/curl.h>

#include "absl/status/statusor.h"

namespace hotbed {

struct CurlLibrary {
  decltype(&curl_easy_init) init;
  decltype(&curl_easy_cleanup) cleanup;
  decltype(&curl_easy_reset) reset;
  decltype(&curl_easy_setopt) setopt;
  decltype(&curl_easy_getinfo) getinfo;
  decltype(&curl_easy_perform) perform;
  decltype(&curl_easy_strerror) strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;

  // Unimplemented: it is not installed, or too old. The result is never deleted.
  static absl::StatusOr<const CurlLibrary*> Load();
};

}  // namespace hotbed

#endif  // HOTBED_PLACES_CURL_LIBRARY_H_
