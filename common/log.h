// One line per message on stderr: `I 2026-01-31T12:00:00.123456Z server/main.cc:42] text`.
// Thread-safe.
//
//   HOTBED_LOG(Info) << "serving on " << address;
//   HOTBED_LOG(Warning) << ...;   HOTBED_LOG(Error) << ...;
//   HOTBED_LOG_EVERY_S(Warning, 5) << "...";
//
// SetLogFormat(LogFormat::kJson) writes one JSON object per line instead.
#ifndef HOTBED_COMMON_LOG_H_
#define HOTBED_COMMON_LOG_H_

#include <atomic>
#include <cstdint>
#include <sstream>

namespace hotbed {

enum class LogLevel : int { kInfo = 0, kWarning = 1, kError = 2 };
enum class LogFormat { kText, kJson };

void SetLogFormat(LogFormat format);
// Leaves out lines below this level: for libraries inside other programs. kInfo by default.
void SetLogLevelMin(LogLevel level);
// Puts `name` (for example of a server) into every later line of this process.
void SetLogName(const char* name);

namespace internal {

// True for at most one caller per `seconds`, by the steady clock.
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

#define HOTBED_LOG(severity) \
  ::hotbed::internal::LogLine(::hotbed::LogLevel::k##severity, __FILE__, __LINE__).stream()

#define HOTBED_LOG_EVERY_S(severity, seconds)                      \
  for (bool hotbed_on_ =                                           \
           [] {                                                    \
             static std::atomic<int64_t> last_ns{0};               \
             return ::hotbed::internal::LogDue(&last_ns, seconds); \
           }();                                                    \
       hotbed_on_; hotbed_on_ = false)                             \
  HOTBED_LOG(severity)

#endif  // HOTBED_COMMON_LOG_H_
