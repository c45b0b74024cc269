#include "checkpoint/block_packer.h"

#include <zstd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace hotbed {
namespace {

// Higher levels save a few per cent more of trained rows and take several times as long.
constexpr int kLevel = 1;
constexpr size_t kGroup = 4;

}  // namespace

absl::Status CheckCompression(absl::string_view name) {
  if (name.empty() || name == kZstd) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("compress is \"", name, "\"; allowed: zstd, or nothing"));
}

void BlockPacker::Free::operator()(ZSTD_CCtx_s* context) const { ZSTD_freeCCtx(context); }

absl::string_view BlockPacker::Pack(absl::string_view ids, absl::string_view payloads) {
  if (context_ == nullptr) {
    context_.reset(ZSTD_createCCtx());
    HOTBED_CHECK(context_ != nullptr) << "no memory to compress rows";
  }
  plain_.assign(ids.data(), ids.size());
  plain_.append(payloads.data(), payloads.size());
  sorted_ = plain_;
  const size_t groups = plain_.size() / kGroup;
  for (size_t byte = 0; byte < kGroup; ++byte) {
    char* const to = sorted_.data() + byte * groups;
    for (size_t k = 0; k < groups; ++k) to[k] = plain_[k * kGroup + byte];
  }
  packed_.resize(plain_.size());
  const size_t bytes = ZSTD_compressCCtx(context_.get(), packed_.data(), packed_.size(),
                                         sorted_.data(), sorted_.size(), kLevel);
  // An error says that it did not fit.
  if (ZSTD_isError(bytes) != 0 || bytes >= plain_.size()) return {};
  return absl::string_view(packed_).substr(0, bytes);
}

bool UnpackBlock(absl::string_view packed, absl::Span<char> out) {
  std::string sorted(out.size(), '\0');
  const size_t bytes = ZSTD_decompress(sorted.data(), sorted.size(), packed.data(), packed.size());
  if (ZSTD_isError(bytes) != 0 || bytes != out.size()) return false;
  const size_t groups = out.size() / kGroup;
  for (size_t byte = 0; byte < kGroup; ++byte) {
    const char* const from = sorted.data() + byte * groups;
    for (size_t k = 0; k < groups; ++k) out[k * kGroup + byte] = from[k];
  }
  const size_t rest = groups * kGroup;
  std::memcpy(out.data() + rest, sorted.data() + rest, out.size() - rest);
  return true;
}

}  // namespace hotbed
