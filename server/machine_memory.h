// How much memory this process can have.
#ifndef HOTBED_SERVER_MACHINE_MEMORY_H_
#define HOTBED_SERVER_MACHINE_MEMORY_H_

#include <cstdint>
#include <string>

namespace hotbed {

// The least of the machine's memory and the limits of the process's control group (v1 or v2), in
// bytes; 0: nothing is known. `root` stands in front of /proc and /sys, for tests.
uint64_t MachineMemoryBytes(const std::string& root = "");

}  // namespace hotbed

#endif  // HOTBED_SERVER_MACHINE_MEMORY_H_
