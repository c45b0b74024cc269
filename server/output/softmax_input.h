// A call of the output layer, checked and laid out for the kernels: the same for all of its shards.
// Immutable once read.
#ifndef HOTBED_SERVER_OUTPUT_SOFTMAX_INPUT_H_
#define HOTBED_SERVER_OUTPUT_SOFTMAX_INPUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tables/table_spec.h"
#include "proto/softmax.pb.h"

namespace hotbed {

constexpr uint32_t kSoftmaxTokensMax = 16'384;
constexpr uint64_t kSoftmaxHiddenBytesMax = 8ull << 20;
constexpr uint64_t kSoftmaxLogitBytesMax = 8ull << 20;
constexpr int kSoftmaxShardsMax = 1'024;
constexpr uint32_t kSoftmaxTimeoutMsMax = 600'000;
// Rows of one block: they are computed together, and pushed together.
constexpr uint32_t kSoftmaxBlockRows = 512;
constexpr uint64_t kSoftmaxRowsMax = uint64_t{kSoftmaxBlockRows} * ((1 << 20) - 1);

struct SoftmaxInput {
  enum class What : uint8_t { kStatistics, kHiddenGradient, kUpdate };

  // InvalidArgument names field, value and limit.
  static absl::StatusOr<SoftmaxInput> Read(const v1::SoftmaxRequest& request,
                                           const TableSpec& table, What what);
  // The memory that a call of this size takes beside its messages, in `threads` threads.
  static uint64_t BytesOf(const v1::SoftmaxRequest& request, uint32_t dim, int threads);

  What what = What::kStatistics;
  bool wants_logits = false;
  uint32_t tokens = 0;
  uint32_t dim = 0;
  uint32_t width = 0;  // of hidden states: dim, or one less where a row ends with its bias
  // Hidden states with `dim` elements, the last of which is 1 where rows have a bias: token by
  // token, and element by element.
  std::vector<float> by_token;
  std::vector<float> by_element;
  std::vector<uint64_t> targets;
  std::vector<float> maxima;
  std::vector<float> factors;
  std::vector<float> floors;
  std::vector<float> target_factors;
  std::vector<uint64_t> added_rows;
  std::vector<float> added_gradients;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_OUTPUT_SOFTMAX_INPUT_H_
