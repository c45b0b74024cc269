// For threads that wait for answers of a few rows while other threads keep all cores busy.
#ifndef HOTBED_SHORT_TURNS_H_
#define HOTBED_SHORT_TURNS_H_

namespace hotbed {

// The calling thread asks the kernel for turns of 0.1 ms (Linux 6.12 or later). It gets no more of
// the processor, but gets it sooner when an answer wakes it up. The library's own threads and the
// servers do the same. Threads that it starts from now on inherit it. False: the kernel does not
// take it, and nothing has changed.
bool TakeShortTurns();

}  // namespace hotbed

#endif  // HOTBED_SHORT_TURNS_H_
