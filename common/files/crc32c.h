// CRC-32C (Castagnoli polynomial, reflected, as in RFC 3720 and in RocksDB's format): the checksum
// of log records, rows and small files. Part of the on-disk formats. Uses the SSE4.2 instruction
// where the processor has it. Thread-safe.
#ifndef HOTBED_COMMON_FILES_CRC32C_H_
#define HOTBED_COMMON_FILES_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace hotbed {

// The checksum of `bytes` at `data`, continuing from `crc`, the checksum of the preceding bytes:
// Crc32c(b, nb, Crc32c(a, na)) == Crc32c(ab, na + nb).
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// The table-driven implementation, for machines without the instruction. Public for tests.
uint32_t Crc32cPortable(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILES_CRC32C_H_
