// How a serving server tells when a call that it has refused may be sent again.
#ifndef HOTBED_PROTO_RETRY_METADATA_H_
#define HOTBED_PROTO_RETRY_METADATA_H_

namespace hotbed {

// Trailing metadata of a call that ends with RESOURCE_EXHAUSTED: milliseconds, in digits.
inline constexpr char kRetryMetadata[] = "hotbed-retry-ms";

}  // namespace hotbed

#endif  // HOTBED_PROTO_RETRY_METADATA_H_
