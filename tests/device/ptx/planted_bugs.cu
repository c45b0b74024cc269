// Kernels with one bug each, and the same without it, for ptx_machine_test.cc. Blocks of 32 or 64
// threads; `words` is 128 words of device memory.
#include <cstdint>

extern "C" {

__global__ void GoodNeighbours(uint32_t* words) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t* const own = words + threadIdx.x / 32 * 32;
  own[lane] = 100 + lane;
  __syncwarp();
  const uint32_t next = own[(lane + 1) % 32];
  __syncwarp();
  own[lane] = next;
}

__global__ void NeighboursWithoutSync(uint32_t* words) {
  volatile uint32_t* const own = words;
  const uint32_t lane = threadIdx.x % 32;
  own[lane] = 100 + lane;
  const uint32_t next = own[(lane + 1) % 32];
  __syncwarp();
  own[lane] = next;
}

// A shuffle makes lanes meet, but orders no memory.
__global__ void NeighboursAfterShuffle(uint32_t* words) {
  volatile uint32_t* const own = words;
  const uint32_t lane = threadIdx.x % 32;
  own[lane] = 100 + lane;
  const uint32_t other = __shfl_sync(0xffffffffu, lane, 5);
  const uint32_t next = own[(lane + 1) % 32];
  __syncwarp();
  own[lane] = next + other;
}

// Halves of a warp that sync each for itself, and read each other's.
__global__ void HalvesApart(uint32_t* words) {
  volatile uint32_t* const own = words;
  const uint32_t lane = threadIdx.x % 32;
  own[lane] = lane;
  __syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);
  own[64 + lane] = own[31 - lane];
}

__global__ void SameValueByAll(uint8_t* bytes) { bytes[0] = 1; }

__global__ void TwoWarpsOneByte(uint8_t* bytes) {
  if (threadIdx.x % 32 == 3) bytes[7] = static_cast<uint8_t>(threadIdx.x);
}

__global__ void OneWarpReadsAnothers(uint8_t* bytes) {
  if (threadIdx.x == 0) bytes[7] = 1;
  if (threadIdx.x == 40) bytes[64] = bytes[7];
}

__global__ void OutOfBounds(uint32_t* words, uint32_t at) { words[at + threadIdx.x % 32] = 1; }

__global__ void WideLoad(const uint8_t* bytes, uint4* out, uint32_t from) {
  if (threadIdx.x == 0) *out = *reinterpret_cast<const uint4*>(bytes + from);
}

__global__ void BallotOfSome(uint32_t* words, uint32_t mask) {
  if (threadIdx.x < 16) words[threadIdx.x] = __ballot_sync(mask, threadIdx.x % 2 == 0);
}

__global__ void ShuffleInBranch(uint32_t* words) {
  const uint32_t lane = threadIdx.x;
  if (lane < 16) {
    words[lane] = __shfl_sync(0xffffffffu, lane, 3);
  } else {
    words[lane] = __ballot_sync(0xffffffffu, lane % 3 == 0);
  }
}

__global__ void ShuffleFromOutside(uint32_t* words, uint32_t from) {
  const uint32_t lane = threadIdx.x;
  if (lane < 16) words[lane] = __shfl_sync(0xffffu, lane, from);
}

__global__ void AtomicsAndReads(uint8_t* bytes) {
  auto* const word = reinterpret_cast<uint32_t*>(bytes);
  if (threadIdx.x % 32 == 0) atomicOr(word, 1u << threadIdx.x / 32);
  if (threadIdx.x % 32 == 1) bytes[64 + threadIdx.x] = *reinterpret_cast<volatile uint8_t*>(bytes);
}

__global__ void AtomicsAndWideReads(uint8_t* bytes) {
  volatile uint32_t* const words = reinterpret_cast<uint32_t*>(bytes);
  if (threadIdx.x == 0) atomicOr(reinterpret_cast<uint32_t*>(bytes), 1u);
  if (threadIdx.x == 40) words[16] = words[0];
}

__global__ void AtomicsOnly(uint32_t* words) { atomicAdd(words, threadIdx.x); }

__global__ void WaitsForNobody(uint32_t* words) {
  while (*reinterpret_cast<volatile uint32_t*>(words) == 0) {
  }
  words[1] = 1;
}

// Every lane as many rounds as its number: they part, and meet again at the sync.
__global__ void PartAndMeet(uint32_t* words) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < threadIdx.x; ++i) sum += i * words[64] + 1;
  __syncwarp();
  uint32_t total = sum;
  for (uint32_t half = 16; half > 0; half /= 2) {
    total += __shfl_xor_sync(0xffffffffu, total, half);
  }
  words[threadIdx.x] = total + sum;
}

}  // extern "C"
