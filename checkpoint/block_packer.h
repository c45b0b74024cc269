// Packs the contents of a block of rows (checkpoint/rows_file.h): the first bytes of all groups of
// four bytes, then their second, third and fourth bytes, then what is left at the end; all that as
// one zstd frame. Sorted like that, the signs and exponents of floats lie beside each other and
// shrink; otherwise nothing of trained weights does.
#ifndef HOTBED_CHECKPOINT_BLOCK_PACKER_H_
#define HOTBED_CHECKPOINT_BLOCK_PACKER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct ZSTD_CCtx_s;

namespace hotbed {

constexpr char kZstd[] = "zstd";  // the only compression that there is
// The memory of a packer, and of UnpackBlock, beside the block.
constexpr uint64_t kPackerBytes = 4ull << 20;

// InvalidArgument: neither kZstd nor empty, which is none.
absl::Status CheckCompression(absl::string_view name);

// Thread-compatible. Takes its memory at the first block.
class BlockPacker {
 public:
  // The packed bytes of both, valid until the next call. Empty: they would not be fewer.
  absl::string_view Pack(absl::string_view ids, absl::string_view payloads);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_CCtx_s, Free> context_;
  std::string plain_;
  std::string sorted_;
  std::string packed_;
};

// Fills `out` with the contents. False: `packed` is not a frame of that many bytes.
bool UnpackBlock(absl::string_view packed, absl::Span<char> out);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_BLOCK_PACKER_H_
