// One line a message on stderr: `I 2026-01-31T12:00:00.123456Z server/main.cc:42] text`.
// Thread-safe.
//
//   HOTBED_LOG(Info) << "serving on " << address;
//   HOTBED_LOG(Warning) << ...;   HOTBED_LOG(Error) << ...;
//   HOTBED_LOG_EVERY_S(Warning, 5) << "...";
//
// SetLogFormat(LogFormat::kJson) writes one JSON object a line instead; SetLogLevel drops what is
// below.
#ifndef HOTBED_COMMON_LOG_H_
#define HOTBED_COMMON_LOG_H_

#include <atomic>
#include <cstdint>
#include <sstream>

namespace hotbed {

enum class LogLevel : int { kInfo = 0, kWarning = 1, kError = 2, kNone = 3 };
enum class LogFormat { kText, kJson };

void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
// Puts `name` (a server's name, say) in every line of this process.
void SetLogName(const char* name);

namespace internal {

bool LogEnabled(LogLevel level);
// True for the first caller in each `seconds`, by the steady clock.
bool LogDue(std::atomic<int64_t>* last_ns, double seconds);

class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line);
  ~LogLine();
  std::ostream& stream() { return stream_; }

 private:
  LogLevel level_;
  const char* file_;
  int line_;
  std::ostringstream stream_;
};

}  // namespace internal
}  // namespace hotbed

#define HOTBED_LOG(severity)                                                              \
  for (bool hotbed_on_ = ::hotbed::internal::LogEnabled(::hotbed::LogLevel::k##severity); \
       hotbed_on_; hotbed_on_ = false)                                                    \
  ::hotbed::internal::LogLine(::hotbed::LogLevel::k##severity, __FILE__, __LINE__).stream()

#define HOTBED_LOG_EVERY_S(severity, seconds)                                          \
  for (bool hotbed_on_ =                                                               \
           [] {                                                                        \
             static std::atomic<int64_t> last_ns{0};                                   \
             return ::hotbed::internal::LogEnabled(::hotbed::LogLevel::k##severity) && \
                    ::hotbed::internal::LogDue(&last_ns, seconds);                     \
           }();                                                                        \
       hotbed_on_; hotbed_on_ = false)                                                 \
  ::hotbed::internal::LogLine(::hotbed::LogLevel::k##severity, __FILE__, __LINE__).stream()

#endif  // HOTBED_COMMON_LOG_H_
