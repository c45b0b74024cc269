#include <algorithm>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/cuda/launch.h"
#include "device/step_kinds.h"

namespace hotbed {
namespace device {
namespace {

std::string Text(const char* what, cudaError_t error) {
  return std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

std::string NotPinned(cudaError_t error, uint64_t bytes) {
  const bool is_short = error == cudaErrorMemoryAllocation;
  return Text("pinning host memory", error) + "; " + std::to_string(bytes) + " bytes wanted" +
         (is_short ? "; lower --host-bytes, or raise the limits of memory and of locked memory "
                     "(ulimit -l, the container's)"
                   : "");
}

// The device that the calling thread works with, as CUDA keeps it; 0 for a new thread.
int& CurrentOfThread() {
  thread_local int number = 0;
  return number;
}

cudaError_t MakeCurrent(int number) {
  if (CurrentOfThread() == number) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(number);
  if (error == cudaSuccess) CurrentOfThread() = number;
  return error;
}

// A stream for each queue, and events: one at a time by which a stream waits for another, which
// remembers what the event stood for, and those of marks in turn.
struct Streams {
  cudaStream_t of[kQueues] = {};
  cudaEvent_t order = nullptr;
  cudaEvent_t marks[kMarksMax] = {};

  cudaError_t Open() {
    cudaError_t error = cudaSuccess;
    for (cudaStream_t& stream : of) {
      if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&order, cudaEventDisableTiming);
    for (cudaEvent_t& mark : marks) {
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&mark, cudaEventDisableTiming);
    }
    return error;
  }
  void Close() {
    for (cudaStream_t stream : of) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    if (order != nullptr) cudaEventDestroy(order);
    for (cudaEvent_t mark : marks) {
      if (mark != nullptr) cudaEventDestroy(mark);
    }
  }
};

class CudaDevice : public Device {
 public:
  CudaDevice(int number, const cudaDeviceProp& properties, const Streams& streams)
      : number_(number),
        name_(properties.name),
        processors_(static_cast<uint32_t>(properties.multiProcessorCount)),
        streams_(streams),
        stream_(streams.of[static_cast<uint32_t>(Queue::kWork)]) {}
  ~CudaDevice() override {
    MakeCurrent(number_);
    streams_.Close();
  }

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
    if (!ok()) return failure_;
    void* taken = nullptr;
    cudaError_t error = cudaMalloc(&taken, bytes);
    if (error == cudaSuccess) error = cudaMemsetAsync(taken, 0, bytes, stream_);
    if (error == cudaSuccess) {
      *memory = static_cast<uint8_t*>(taken);
      return {};
    }
    if (taken != nullptr) cudaFree(taken);
    size_t free = 0, total = 0;
    cudaGetLastError();  // out of memory is not sticky
    if (error != cudaErrorMemoryAllocation) return Failed("device memory", error);
    cudaMemGetInfo(&free, &total);
    return {Code::kNoMemory, "device memory of " + Describe() + ": " + std::to_string(bytes) +
                                 " bytes wanted, " + std::to_string(free) + " of " +
                                 std::to_string(total) + " free; lower --device-bytes"};
  }
  void Free(uint8_t* memory) override {
    MakeCurrent(number_);
    if (memory != nullptr) Note("cudaFree", cudaFree(memory));
  }

  Status AllocateStaging(uint64_t bytes, uint8_t** memory) override {
    *memory = nullptr;
    if (!ok()) return failure_;
    void* taken = nullptr;
    const cudaError_t error = cudaMallocHost(&taken, bytes);
    *memory = static_cast<uint8_t*>(taken);
    if (error == cudaSuccess) return {};
    cudaGetLastError();
    return {Code::kNoMemory, NotPinned(error, bytes)};
  }
  void FreeStaging(uint8_t* memory) override {
    MakeCurrent(number_);
    if (memory != nullptr) Note("cudaFreeHost", cudaFreeHost(memory));
  }
  // These two touch nothing that other calls do: CUDA's errors are the thread's, and thread-safe.
  Status PinStaging(uint8_t* memory, uint64_t bytes) override {
    cudaError_t error = MakeCurrent(number_);
    if (error == cudaSuccess) error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) return {};
    cudaGetLastError();
    return {Code::kNoMemory, NotPinned(error, bytes)};
  }
  void UnpinStaging(uint8_t* memory) override {
    if (MakeCurrent(number_) != cudaSuccess || cudaHostUnregister(memory) != cudaSuccess) {
      cudaGetLastError();  // of a device that has failed
    }
  }

  void CopyIn(void* to, const void* from, uint64_t bytes) override {
    counts_.bytes_in += bytes;
    Copy("copy in", Queue::kWork, to, from, bytes, cudaMemcpyHostToDevice);
  }
  void CopyOut(void* to, const void* from, uint64_t bytes) override {
    CountOut(bytes);
    Copy("copy out", Queue::kWork, to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void CopyInAside(void* to, const void* from, uint64_t bytes) override {
    counts_.bytes_in += bytes;
    Copy("copy in", Queue::kIn, to, from, bytes, cudaMemcpyHostToDevice);
  }
  void CopyOutAside(void* to, const void* from, uint64_t bytes) override {
    CountOut(bytes);
    Copy("copy out", Queue::kOut, to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void CopyWithin(void* to, const void* from, uint64_t bytes) override {
    Copy("copy", Queue::kWork, to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void Clear(void* memory, uint64_t bytes) override {
    if (bytes > 0 && ok()) Note("clear", cudaMemsetAsync(memory, 0, bytes, stream_));
  }

  void Order(Queue later, Queue earlier) override {
    if (ok()) Note("order", cudaEventRecord(streams_.order, StreamOf(earlier)));
    if (ok()) Note("order", cudaStreamWaitEvent(StreamOf(later), streams_.order, 0));
  }
  uint64_t Mark(Queue queue) override {
    const uint64_t mark = next_mark_++;
    if (ok()) Note("mark", cudaEventRecord(streams_.marks[mark % kMarksMax], StreamOf(queue)));
    return mark;
  }
  Status WaitFor(uint64_t mark) override {
    ++counts_.waits;
    if (ok()) Note("wait", cudaEventSynchronize(streams_.marks[mark % kMarksMax]));
    if (!failure_.ok()) Quiet();
    return failure_;
  }

  uint64_t SortScratchBytes(uint32_t count) override { return SortBytes(count); }
  void Sort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
            uint32_t* sorted, uint32_t* order, uint8_t* scratch) override {
    counts_.launches += SortLaunches(bits);
    if (!ok()) return;
    Note("sort", LaunchSort(keys, counted, count, bits, sorted, order, scratch, stream_));
  }
  void Run(const ReadWork& work) override { Launch("read", work); }
  void Run(const LeftWork& work) override { Launch("left", work); }
  void Run(const PoolWork& work) override { Launch("pool", work); }
  void Run(const BucketWork& work) override { Launch("buckets", work); }
  void Run(const InsertWork& work) override { Launch("insert", work); }
  void Run(const ExchangeWork& work) override { Launch("exchange", work); }
  void Run(const FirstValueWork& work) override { Launch("first values", work); }
  void Run(const TakeWork& work) override { Launch("take", work); }
  void Run(const ReleaseWork& work) override { Launch("release", work); }
  void Run(const SumWork& work) override { Launch("sums", work); }
  void Run(const AnyStepWork& work) override { Launch("any steps", work); }
  void RunSteps(OptimizerKind kind, StepWay way, const UpdateBatch& batch) override {
    ForStepKind(kind, [&](auto of) {
      constexpr OptimizerKind kKind = decltype(of)::kKind;
      if (way == StepWay::kBare) return Launch("steps", StepWork<kKind, StepWay::kBare>{batch});
      if (way == StepWay::kPlain) return Launch("steps", StepWork<kKind, StepWay::kPlain>{batch});
      Launch("steps", StepWork<kKind, StepWay::kOptions>{batch});
    });
  }

  Status Wait() override {
    ++counts_.waits;
    for (cudaStream_t stream : streams_.of) {
      if (ok()) Note("wait", cudaStreamSynchronize(stream));
    }
    if (!failure_.ok()) Quiet();
    return failure_;
  }
  DeviceCounts counts() const override { return counts_; }

 private:
  // Before each call of CUDA's: of this device, whatever thread it comes from.
  bool ok() {
    if (failure_.ok()) Note("cudaSetDevice", MakeCurrent(number_));
    return failure_.ok();
  }
  // An error need not have stopped the copies that were given before it.
  void Quiet() {
    for (cudaStream_t stream : streams_.of) cudaStreamSynchronize(stream);
  }
  void CountOut(uint64_t bytes) {
    counts_.bytes_out += bytes;
    counts_.copies_out += bytes > 0;
  }
  cudaStream_t StreamOf(Queue queue) const { return streams_.of[static_cast<uint32_t>(queue)]; }
  void Copy(const char* what, Queue queue, void* to, const void* from, uint64_t bytes,
            cudaMemcpyKind kind) {
    if (bytes == 0 || !ok()) return;
    Note(what, cudaMemcpyAsync(to, from, bytes, kind, StreamOf(queue)));
  }
  Status Failed(const char* what, cudaError_t error) {
    if (failure_.ok()) failure_ = {Code::kFailed, Describe() + ", " + Text(what, error)};
    return failure_;
  }
  void Note(const char* what, cudaError_t error) {
    if (error != cudaSuccess) Failed(what, error);
  }
  template <typename Work>
  void Launch(const char* what, const Work& work) {
    ++counts_.launches;
    if (ok()) Note(what, LaunchUnits(work, processors_, stream_));
  }

  const int number_;
  const std::string name_;
  const uint32_t processors_;
  Streams streams_;
  const cudaStream_t stream_;  // of works
  uint64_t next_mark_ = 0;
  Status failure_;
  DeviceCounts counts_;
};

}  // namespace

Status OpenCudaDevice(int number, std::unique_ptr<Device>* device) {
  int count = 0;
  cudaDeviceProp properties = {};
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return {Code::kNoDevice, Text("CUDA", error)};
  if (number < 0 || number >= count) {
    return {Code::kNoDevice, "CUDA device " + std::to_string(number) + " of " +
                                 std::to_string(count) + "; numbers begin with 0"};
  }
  error = MakeCurrent(number);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, number);
  if (error == cudaSuccess && properties.major < 8) {
    return {Code::kNoDevice, std::string(properties.name) + " has compute capability " +
                                 std::to_string(properties.major) + "." +
                                 std::to_string(properties.minor) + ", needed is 8.0"};
  }
  Streams streams;
  if (error == cudaSuccess) error = streams.Open();
  if (error != cudaSuccess) {
    streams.Close();
    return {Code::kNoDevice, Text("opening the CUDA device", error)};
  }
  *device = std::make_unique<CudaDevice>(number, properties, streams);
  return {};
}

}  // namespace device
}  // namespace hotbed
