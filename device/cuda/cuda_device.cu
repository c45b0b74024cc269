#include <algorithm>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {
namespace {

// Of the sums of StepWork's workers: small enough to stay in the L2 cache.
constexpr uint64_t kSumBytesMax = 32ull << 20;

std::string Text(const char* what, cudaError_t error) {
  return std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

class CudaDevice : public Device {
 public:
  CudaDevice(int number, const cudaDeviceProp& properties, cudaStream_t stream)
      : number_(number),
        name_(properties.name),
        blocks_max_(static_cast<uint32_t>(properties.multiProcessorCount) * kBlocksOfProcessor),
        stream_(stream) {}
  ~CudaDevice() override { cudaStreamDestroy(stream_); }

  std::string Describe() const override {
    return name_ + " (device " + std::to_string(number_) + ")";
  }

  uint64_t free_bytes() override {
    size_t free = 0, total = 0;
    if (ok()) Note("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
    return free;
  }

  Status Allocate(uint64_t bytes, uint8_t** memory) override {
    *memory = nullptr;
    void* taken = nullptr;
    cudaError_t error = cudaMalloc(&taken, bytes);
    if (error == cudaSuccess) error = cudaMemsetAsync(taken, 0, bytes, stream_);
    if (error == cudaSuccess) {
      *memory = static_cast<uint8_t*>(taken);
      return {};
    }
    size_t free = 0, total = 0;
    cudaGetLastError();  // out of memory is not sticky
    if (error != cudaErrorMemoryAllocation) return Failed("device memory", error);
    cudaMemGetInfo(&free, &total);
    return {Code::kNoMemory, "device memory of " + Describe() + ": " + std::to_string(bytes) +
                                 " bytes wanted, " + std::to_string(free) + " of " +
                                 std::to_string(total) + " free; lower --device-bytes"};
  }
  void Free(uint8_t* memory) override { Note("cudaFree", cudaFree(memory)); }

  Status AllocateStaging(uint64_t bytes, uint8_t** memory) override {
    void* taken = nullptr;
    const cudaError_t error = cudaMallocHost(&taken, bytes);
    *memory = static_cast<uint8_t*>(taken);
    if (error == cudaSuccess) return {};
    cudaGetLastError();
    return {Code::kNoMemory, Text("pinned host memory", error) + "; " + std::to_string(bytes) +
                                 " bytes wanted; raise the limit of locked memory (ulimit -l)"};
  }
  void FreeStaging(uint8_t* memory) override { Note("cudaFreeHost", cudaFreeHost(memory)); }

  void CopyIn(void* to, const void* from, uint64_t bytes) override {
    counts_.bytes_in += bytes;
    if (bytes == 0 || !ok()) return;
    Note("copy in", cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  }
  void CopyOut(void* to, const void* from, uint64_t bytes) override {
    counts_.bytes_out += bytes;
    if (bytes == 0 || !ok()) return;
    Note("copy out", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
  }
  void CopyWithin(void* to, const void* from, uint64_t bytes) override {
    if (bytes == 0 || !ok()) return;
    Note("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  void Clear(void* memory, uint64_t bytes) override {
    if (bytes > 0 && ok()) Note("clear", cudaMemsetAsync(memory, 0, bytes, stream_));
  }

  uint64_t SortScratchBytes(uint32_t count) override { return SortBytes(count); }
  void Sort(const uint32_t* keys, uint32_t count, uint32_t bits, uint32_t* sorted, uint32_t* order,
            uint8_t* scratch) override {
    // The numbers, a histogram and its scan, and a pass for 8 bits: how CUB sorts many keys.
    Launch("sort", 3 + (bits + 7) / 8,
           [&]() { return LaunchSort(keys, count, bits, sorted, order, scratch, stream_); });
  }

  void Run(const ReadWork& work) override {
    Launch("read", 1, [&]() { return LaunchRead(work, blocks_max_, stream_); });
  }
  void Run(const PoolWork& work) override {
    Launch("pool", 1, [&]() { return LaunchPool(work, blocks_max_, stream_); });
  }
  void Run(const DecodeWork& work) override {
    Launch("decode", 1, [&]() { return LaunchDecode(work, blocks_max_, stream_); });
  }
  void Run(const BucketWork& work) override {
    Launch("buckets", 1, [&]() { return LaunchBuckets(work, blocks_max_, stream_); });
  }
  void Run(const InsertWork& work) override {
    Launch("insert", 1, [&]() { return LaunchInsert(work, blocks_max_, stream_); });
  }
  void Run(const TakeWork& work) override {
    Launch("take", 1, [&]() { return LaunchTake(work, blocks_max_, stream_); });
  }
  void Run(const ReleaseWork& work) override {
    Launch("release", 1, [&]() { return LaunchRelease(work, blocks_max_, stream_); });
  }
  void Run(const PieceWork& work) override {
    Launch("pieces", 1, [&]() { return LaunchPieces(work, blocks_max_, stream_); });
  }
  void RunSteps(OptimizerKind kind, const UpdateBatch& batch) override {
    const uint32_t teams = kBlockThreads / StepWork<OptimizerKind::kSgd>::kLanes;
    const uint32_t blocks = StepWorkers(batch.sum_stride) / teams;
    Launch("steps", 2, [&]() { return LaunchPlainSteps(StepKind(kind), batch, blocks, stream_); });
  }
  uint32_t StepWorkers(uint32_t sum_stride) const override {
    const uint32_t teams = kBlockThreads / StepWork<OptimizerKind::kSgd>::kLanes;
    const uint64_t blocks = kSumBytesMax / (uint64_t{sum_stride} * teams);
    return teams * static_cast<uint32_t>(std::clamp<uint64_t>(blocks, 1, blocks_max_));
  }

  Status Wait() override {
    ++counts_.waits;
    if (ok()) Note("wait", cudaStreamSynchronize(stream_));
    return failure_;
  }
  DeviceCounts counts() const override { return counts_; }

 private:
  bool ok() const { return failure_.ok(); }
  Status Failed(const char* what, cudaError_t error) {
    if (ok()) failure_ = {Code::kFailed, Describe() + ", " + Text(what, error)};
    return failure_;
  }
  void Note(const char* what, cudaError_t error) {
    if (error != cudaSuccess) Failed(what, error);
  }
  template <typename F>
  void Launch(const char* what, uint32_t launches, F launch) {
    counts_.launches += launches;
    if (ok()) Note(what, launch());
  }

  const int number_;
  const std::string name_;
  const uint32_t blocks_max_;
  const cudaStream_t stream_;
  Status failure_;
  DeviceCounts counts_;
};

}  // namespace

Status OpenCudaDevice(int number, std::unique_ptr<Device>* device) {
  int count = 0;
  cudaDeviceProp properties = {};
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return {Code::kNoDevice, Text("CUDA", error)};
  if (number < 0 || number >= count) {
    return {Code::kNoDevice, "CUDA device " + std::to_string(number) + " of " +
                                 std::to_string(count) + "; numbers begin with 0"};
  }
  error = cudaSetDevice(number);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, number);
  if (error == cudaSuccess && properties.major < 8) {
    return {Code::kNoDevice, std::string(properties.name) + " has compute capability " +
                                 std::to_string(properties.major) + "." +
                                 std::to_string(properties.minor) + ", needed is 8.0"};
  }
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return {Code::kNoDevice, Text("opening the CUDA device", error)};
  *device = std::make_unique<CudaDevice>(number, properties, stream);
  return {};
}

}  // namespace device
}  // namespace hotbed
