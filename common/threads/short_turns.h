// How soon a thread that was woken gets a core where others keep all of them busy. Callers of the
// client library have the function from client/include/hotbed/short_turns.h.
#ifndef HOTBED_COMMON_THREADS_SHORT_TURNS_H_
#define HOTBED_COMMON_THREADS_SHORT_TURNS_H_

#include <cstdint>

namespace hotbed {

// For threads that answer requests: work between two messages takes microseconds.
constexpr int64_t kShortTurnNs = 100'000;

// The calling thread asks the kernel for turns of kShortTurnNs instead of the usual milliseconds.
// It gets no more of the processor for it, but gets it sooner when it wakes up: the kernel does not
// let it wait for the end of a longer turn of another thread, such as one that writes rows back.
// Threads that it starts from now on inherit this.
//
// False: the kernel knows no such turns (before Linux 6.12), or a sandbox or a real-time policy
// stands against them; everything works as before.
bool TakeShortTurns();

}  // namespace hotbed

#endif  // HOTBED_COMMON_THREADS_SHORT_TURNS_H_
