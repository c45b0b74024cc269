#include "client/scatter.h"

#include <cstring>

#include "client/row_convert.h"
#include "common/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hotbed {
namespace {

constexpr uint32_t kLookahead = 8;  // rows of the answer fetched early

void FenceStreamingStores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <int kWrite>
void PrefetchRow(const uint8_t* row, uint32_t bytes) {
  for (uint32_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b, kWrite);
}

// The runs of a group with what is needed to place an input of it.
struct Placer {
  const ScatterJob& job;
  const uint32_t dim;
  const uint32_t wire_bytes;
  void (*const to_floats)(const uint8_t*, uint32_t, float*);

  explicit Placer(const ScatterJob& j)
      : job(j),
        dim(j.group->table->dim()),
        wire_bytes(RowWireBytes(j.wire_type, dim)),
        to_floats((j.streaming ? BestRowConverters().to_floats_streaming
                               : BestRowConverters().to_floats)[static_cast<int>(j.wire_type)]) {}

  void Write(const ScatterTarget& target, uint32_t row, const uint8_t* from) const {
    if (target.row_type == RowType::kFp32) {
      to_floats(from, dim, reinterpret_cast<float*>(target.rows + 4ull * dim * row));
    } else if (job.streaming) {
      BestRowConverters().copy_streaming(from, wire_bytes,
                                         target.rows + uint64_t{wire_bytes} * row);
    } else {
      std::memcpy(target.rows + uint64_t{wire_bytes} * row, from, wire_bytes);
    }
  }

  // Rows come in the order of the shards, so their places in the caller's buffer are strewn over
  // it.
  void PrefetchFirst(uint32_t unique) const {
    const ScatterTarget& target = job.targets[job.group->runs[0].feature];
    const uint32_t bytes = RowWireBytes(target.row_type, dim);
    PrefetchRow<1>(target.rows + uint64_t{bytes} * job.group->ids.first[unique], bytes);
  }

  // One feature reads the table: an input is a row of its buffer.
  void PlaceInOne(uint32_t unique, const uint8_t* from, uint8_t exists) const {
    const UniqueIds& ids = job.group->ids;
    const ScatterTarget& target = job.targets[job.group->runs[0].feature];
    for (uint32_t i = ids.first[unique]; i != kNoIndex; i = ids.next[i]) {
      Write(target, i, from);
      if (target.exists != nullptr) target.exists[i] = exists;
    }
  }

  // Several do: the inputs of a chain grow, so the runs are walked along with it.
  void PlaceInMany(uint32_t unique, const uint8_t* from, uint8_t exists) const {
    const UniqueIds& ids = job.group->ids;
    const TableGroup::Run* run = job.group->runs.data();
    for (uint32_t i = ids.first[unique]; i != kNoIndex; i = ids.next[i]) {
      while (i >= run->end) ++run;
      const ScatterTarget& target = job.targets[run->feature];
      Write(target, i - run->begin, from);
      if (target.exists != nullptr) target.exists[i - run->begin] = exists;
    }
  }
};

}  // namespace

void Scatter(const ScatterJob& job) {
  const Placer placer(job);
  const uint32_t* const order = job.group->split.order.data() + job.part->begin;
  const uint32_t rows = job.part->rows();
  const bool one = job.group->runs.size() == 1;
  for (uint32_t k = 0; k < rows; ++k) {
    if (k + kLookahead < rows) {
      PrefetchRow<0>(job.rows[k + kLookahead], placer.wire_bytes);
      if (one && !job.streaming) placer.PrefetchFirst(order[k + kLookahead]);
    }
    const uint8_t exists = job.flags == nullptr ? 0 : job.flags[k] & 1;
    if (one) {
      placer.PlaceInOne(order[k], job.rows[k], exists);
    } else {
      placer.PlaceInMany(order[k], job.rows[k], exists);
    }
  }
  if (job.streaming) FenceStreamingStores();
}

}  // namespace hotbed
