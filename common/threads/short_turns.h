// How long threads run while others wait for a processor.
#ifndef HOTBED_COMMON_THREADS_SHORT_TURNS_H_
#define HOTBED_COMMON_THREADS_SHORT_TURNS_H_

namespace hotbed {

// From now on the calling thread gives its processor up after 0.1 ms when others want it, instead
// of about 3 ms, and has it back as soon; its share of the time stays. For threads that work in
// runs of milliseconds beside others that answer calls. Linux 6.12 and later; does nothing before.
void TakeShortTurns();

}  // namespace hotbed

#endif  // HOTBED_COMMON_THREADS_SHORT_TURNS_H_
