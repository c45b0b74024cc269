// TorchRec's compute kernels: their names, which of them a table may use, and the bandwidth that
// each reaches.
//
// Sources (a48cef7): torchrec/distributed/embedding_types.py (names; which kernels and sharding
// types the sharders of EmbeddingBagCollection, EmbeddingCollection and their quantised sisters
// offer), planner/constants.py (bandwidth of a kernel), planner/enumerators.py (kernels only used
// when asked for). Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_COMPUTE_KERNEL_H_
#define HOTBED_PLANNER_TORCHREC_COMPUTE_KERNEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed::torchrec {

enum class Kernel : uint8_t {
  kDense,
  kFused,
  kFusedUvm,
  kFusedUvmCaching,
  kQuant,
  kQuantUvm,
  kQuantUvmCaching,
  kKeyValue,
  kSsdVirtualTable,
  kDramVirtualTable,
  kCustomized,
};

// TorchRec's default for a table without cache_load_factor.
constexpr double kCachingRatio = 0.2;

const char* KernelName(Kernel kernel);
std::optional<Kernel> FindKernel(std::string_view name);
// "dense, fused, ...": for messages.
std::string KernelNames();

bool IsQuantised(Kernel kernel);
// Rows live elsewhere and a part of them is cached on the device.
bool IsCached(Kernel kernel);
// Rows live in a key-value store; TorchRec counts no bytes for them.
bool IsKeyValue(Kernel kernel);

// Memory bandwidths in bytes per millisecond.
struct MemoryBandwidth {
  double hbm = 0;
  double ddr = 0;
  double hbm_to_ddr = 0;
};

// Bytes per millisecond at which `kernel` reads rows:
//   cpu   dense ddr/2, fused and quant ddr
//   cuda  dense hbm/2, fused and quant hbm, *_uvm hbm_to_ddr/10,
//         *_uvm_caching (r hbm + (1 - r) hbm_to_ddr)/10, key-value kernels hbm_to_ddr
// with r the share of rows cached (kCachingRatio when absent). With `prefetched`, fused_uvm_caching
// on cuda reads at hbm, because its rows are on the device already. nullopt if the device has no
// such kernel.
std::optional<double> KernelBandwidth(PlannerDevice device, Kernel kernel,
                                      const MemoryBandwidth& memory,
                                      std::optional<double> caching_ratio, bool prefetched = false);

// The kinds of modules. Bags are pooled, and quantised modules offer other types and kernels; each
// sharder offers them in its order.
struct ModuleKind {
  bool pooled = true;
  bool quantised = false;
};
std::vector<Sharding> OfferedShardings(ModuleKind module, PlannerDevice device);
std::vector<Kernel> OfferedKernels(ModuleKind module, Sharding sharding, PlannerDevice device);

// Whether the kernel is used only if a constraint names it.
bool IsGuarded(Kernel kernel);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_COMPUTE_KERNEL_H_
