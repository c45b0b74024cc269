// Seeded pseudo-random numbers for tests, load generators, back-off jitter and sampling; the same
// on every machine. Not for row values (row_math has a counter-based generator) and not for
// secrets. Thread-compatible.
//
// xoshiro256++ (Blackman and Vigna, 2019), its state filled from the seed by splitmix64.
#ifndef HOTBED_COMMON_RANDOM_H_
#define HOTBED_COMMON_RANDOM_H_

#include <cstdint>
#include <limits>

namespace hotbed {

class Random {
 public:
  using result_type = uint64_t;  // a UniformRandomBitGenerator: works with std::shuffle

  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {
      uint64_t z = (seed += 0x9e3779b97f4a7c15ull);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      word = z ^ (z >> 31);
    }
  }

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }
  uint64_t operator()() { return Next(); }

  uint64_t Next() {
    const uint64_t result = Rotate(state_[0] + state_[3], 23) + state_[0];
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

  // 0..n-1, n > 0; unbiased (Lemire, 2019).
  uint64_t Uniform(uint64_t n) {
    using Wide = unsigned __int128;
    Wide product = static_cast<Wide>(Next()) * n;
    if (static_cast<uint64_t>(product) < n) {
      const uint64_t threshold = (0 - n) % n;
      while (static_cast<uint64_t>(product) < threshold) product = static_cast<Wide>(Next()) * n;
    }
    return static_cast<uint64_t>(product >> 64);
  }

  // [0, 1), 53 random bits.
  double Double() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool OneIn(uint64_t n) { return Uniform(n) == 0; }

 private:
  static uint64_t Rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

  uint64_t state_[4];
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_RANDOM_H_
