// One of the numbers that an object shows, by its key in /api/status.
#ifndef HOTBED_TESTS_COMMON_NUMBER_OF_H_
#define HOTBED_TESTS_COMMON_NUMBER_OF_H_

#include <cstdint>

#include "common/status_numbers.h"

namespace hotbed {

template <typename T>
uint64_t NumberOf(const T& object, const char* key) {
  StatusNumbers numbers;
  object.AddNumbers(&numbers);
  return numbers[key];
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_COMMON_NUMBER_OF_H_
