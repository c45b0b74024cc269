// HOTBED_CHECK ends the process with file, line and text when an invariant of our own is broken. It
// is never used for conditions that input, network or disk can cause. HOTBED_DCHECK is the same in
// debug builds and under the sanitizers only.
#ifndef HOTBED_COMMON_CHECK_H_
#define HOTBED_COMMON_CHECK_H_

#include <sstream>

namespace hotbed::internal {

// Prints the collected text to stderr and aborts when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace hotbed::internal

#define HOTBED_CHECK(condition)             \
  while (__builtin_expect(!(condition), 0)) \
  ::hotbed::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HOTBED_DCHECK(condition) \
  while (false) HOTBED_CHECK(condition)
#else
#define HOTBED_DCHECK(condition) HOTBED_CHECK(condition)
#endif

#endif  // HOTBED_COMMON_CHECK_H_
