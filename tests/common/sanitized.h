// Under a sanitizer code runs five to twenty times slower, so tests that repeat a case for many
// values repeat it less often there. The build without sanitizers does all of them.
#ifndef HOTBED_TESTS_COMMON_SANITIZED_H_
#define HOTBED_TESTS_COMMON_SANITIZED_H_

namespace hotbed {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

constexpr int FewerIfSanitized(int times) { return kSanitized ? times / 4 : times; }

}  // namespace hotbed

#endif  // HOTBED_TESTS_COMMON_SANITIZED_H_
