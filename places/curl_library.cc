#include "places/curl_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr char kFile[] = "libcurl.so.4";
constexpr unsigned kVersionMin = 0x075800;  // 7.88: signs the payload's checksum that it is given

absl::Status Unusable(absl::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("object stores are reached by libcurl 7.88 or later, and ", kFile, " ", why,
                   ". Install it (Debian: libcurl4)"));
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<const CurlLibrary*> LoadOnce() {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unusable(absl::StrCat("cannot be loaded: ", dlerror()));
  auto* const curl = new CurlLibrary;
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_version_info) version_info = nullptr;
  const bool found = Find(library, "curl_easy_init", &curl->init) &&
                     Find(library, "curl_easy_cleanup", &curl->cleanup) &&
                     Find(library, "curl_easy_reset", &curl->reset) &&
                     Find(library, "curl_easy_setopt", &curl->setopt) &&
                     Find(library, "curl_easy_getinfo", &curl->getinfo) &&
                     Find(library, "curl_easy_perform", &curl->perform) &&
                     Find(library, "curl_easy_strerror", &curl->strerror) &&
                     Find(library, "curl_slist_append", &curl->slist_append) &&
                     Find(library, "curl_slist_free_all", &curl->slist_free_all) &&
                     Find(library, "curl_global_init", &global_init) &&
                     Find(library, "curl_version_info", &version_info);
  if (!found) return Unusable("lacks a function");
  const curl_version_info_data* const version = version_info(CURLVERSION_NOW);
  if (version->version_num < kVersionMin) {
    return Unusable(absl::StrCat("is version ", version->version));
  }
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return Unusable("cannot begin");
  return curl;
}

}  // namespace

absl::StatusOr<const CurlLibrary*> CurlLibrary::Load() {
  static const auto* const loaded = new absl::StatusOr<const CurlLibrary*>(LoadOnce());
  return *loaded;
}

}  // namespace hotbed
