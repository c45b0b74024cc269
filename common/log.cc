#include "common/log.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/json.h"

namespace hotbed {
namespace {

std::atomic<bool> json{false};
std::atomic<LogLevel> level_min{LogLevel::kInfo};

// Leaked, so that lines logged during process exit still find it.
struct Name {
  absl::Mutex mutex;
  std::string text ABSL_GUARDED_BY(mutex);
};

Name& ProcessName() {
  static Name* const name = new Name;
  return *name;
}

std::string NameText() {
  Name& name = ProcessName();
  absl::MutexLock lock(&name.mutex);
  return name.text;
}

std::string Timestamp() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                         utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000);
}

std::string TextLine(LogLevel level, const char* file, int line, const std::string& text) {
  const std::string name = NameText();
  return absl::StrFormat("%c %s %s%s%s:%d] %s\n", "IWE"[static_cast<int>(level)], Timestamp(), name,
                         name.empty() ? "" : " ", file, line, text);
}

std::string JsonLine(LogLevel level, const char* file, int line, const std::string& text) {
  static constexpr const char* kNames[] = {"info", "warning", "error"};
  return absl::StrFormat(R"({"time":"%s","level":"%s","name":%s,"source":%s,"message":%s})"
                         "\n",
                         Timestamp(), kNames[static_cast<int>(level)], JsonString(NameText()),
                         JsonString(absl::StrFormat("%s:%d", file, line)), JsonString(text));
}

}  // namespace

void SetLogFormat(LogFormat format) { json.store(format == LogFormat::kJson); }

void SetLogLevelMin(LogLevel level) { level_min.store(level); }

void SetLogName(const char* name) {
  Name& process = ProcessName();
  absl::MutexLock lock(&process.mutex);
  process.text = name;
}

namespace internal {

bool LogDue(std::atomic<int64_t>* last_ns, double seconds) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ns =
      now.tv_sec * int64_t{1000000000} + now.tv_nsec + 1;  // never 0, which means "never logged"
  int64_t last = last_ns->load(std::memory_order_relaxed);
  if (last != 0 && now_ns - last < seconds * 1e9) return false;
  return last_ns->compare_exchange_strong(last, now_ns);
}

LogLine::LogLine(LogLevel level, const char* file, int line)
    : level_(level), file_(file), line_(line) {}

LogLine::~LogLine() {
  if (level_ < level_min.load(std::memory_order_relaxed)) return;
  const std::string line = json.load(std::memory_order_relaxed)
                               ? JsonLine(level_, file_, line_, stream_.str())
                               : TextLine(level_, file_, line_, stream_.str());
  // One write, so that lines of several threads and processes do not mix.
  absl::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written <= 0) return;
    rest.remove_prefix(written);
  }
}

}  // namespace internal
}  // namespace hotbed
