// A field of a body in JSON, as people and the OpenAPI document have it.
#ifndef HOTBED_SERVING_HTTP_BODY_FIELD_H_
#define HOTBED_SERVING_HTTP_BODY_FIELD_H_

#include <cstdint>

namespace hotbed {

constexpr uint32_t kBodyTimeoutMsMax = 24 * 3600 * 1000;

struct BodyField {
  const char* name;
  int arrays;           // around its numbers: 0 of a field that has one value
  const char* allowed;  // for errors
  const char* schema;   // JSON Schema of its values
  const char* example;  // JSON
  const char* about;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_BODY_FIELD_H_
