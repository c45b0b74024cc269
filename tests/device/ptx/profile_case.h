// Messages of many rows, for what the interpreter's profile says of a row: reads and steps of plain
// tables, as bench/device times them on a GPU.
#ifndef HOTBED_TESTS_DEVICE_PTX_PROFILE_CASE_H_
#define HOTBED_TESTS_DEVICE_PTX_PROFILE_CASE_H_

#include "tests/device/case.h"

namespace hotbed {
namespace device {

Case ProfileCase();

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PROFILE_CASE_H_
