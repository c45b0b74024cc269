#include "planner/torchrec/compute_kernel.h"

#include <array>
#include <utility>

namespace hotbed::torchrec {
namespace {

constexpr std::array<std::pair<Kernel, const char*>, 11> kNames = {{
    {Kernel::kDense, "dense"},
    {Kernel::kFused, "fused"},
    {Kernel::kFusedUvm, "fused_uvm"},
    {Kernel::kFusedUvmCaching, "fused_uvm_caching"},
    {Kernel::kQuant, "quant"},
    {Kernel::kQuantUvm, "quant_uvm"},
    {Kernel::kQuantUvmCaching, "quant_uvm_caching"},
    {Kernel::kKeyValue, "key_value"},
    {Kernel::kSsdVirtualTable, "ssd_virtual_table"},
    {Kernel::kDramVirtualTable, "dram_virtual_table"},
    {Kernel::kCustomized, "customized_kernel"},
}};

std::optional<double> CudaBandwidth(Kernel kernel, const MemoryBandwidth& memory, double cached) {
  switch (kernel) {
    case Kernel::kDense:
      return 0.5 * memory.hbm;
    case Kernel::kFused:
    case Kernel::kQuant:
      return memory.hbm;
    case Kernel::kFusedUvm:
    case Kernel::kQuantUvm:
      return memory.hbm_to_ddr / 10;
    case Kernel::kFusedUvmCaching:
    case Kernel::kQuantUvmCaching:
      return (cached * memory.hbm + (1 - cached) * memory.hbm_to_ddr) / 10;
    case Kernel::kKeyValue:
    case Kernel::kSsdVirtualTable:
    case Kernel::kDramVirtualTable:
      return memory.hbm_to_ddr;
    case Kernel::kCustomized:
      break;
  }
  return std::nullopt;
}

}  // namespace

const char* KernelName(Kernel kernel) {
  for (const auto& [candidate, name] : kNames) {
    if (candidate == kernel) return name;
  }
  return "";
}

std::optional<Kernel> FindKernel(std::string_view name) {
  for (const auto& [kernel, candidate] : kNames) {
    if (name == candidate) return kernel;
  }
  return std::nullopt;
}

std::string KernelNames() {
  std::string names;
  for (const auto& [kernel, name] : kNames)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

bool IsQuantised(Kernel kernel) {
  return kernel == Kernel::kQuant || kernel == Kernel::kQuantUvm ||
         kernel == Kernel::kQuantUvmCaching;
}

bool IsKeyValue(Kernel kernel) {
  return kernel == Kernel::kKeyValue || kernel == Kernel::kSsdVirtualTable ||
         kernel == Kernel::kDramVirtualTable;
}

bool IsCached(Kernel kernel) {
  return kernel == Kernel::kFusedUvmCaching || kernel == Kernel::kQuantUvmCaching ||
         IsKeyValue(kernel);
}

bool IsGuarded(Kernel kernel) { return IsKeyValue(kernel); }

std::optional<double> KernelBandwidth(PlannerDevice device, Kernel kernel,
                                      const MemoryBandwidth& memory,
                                      std::optional<double> caching_ratio, bool prefetched) {
  if (device == PlannerDevice::kCuda) {
    if (prefetched && kernel == Kernel::kFusedUvmCaching) return memory.hbm;
    return CudaBandwidth(kernel, memory, caching_ratio.value_or(kCachingRatio));
  }
  if (kernel == Kernel::kDense) return 0.5 * memory.ddr;
  if (kernel == Kernel::kFused || kernel == Kernel::kQuant) return memory.ddr;
  return std::nullopt;
}

std::vector<Sharding> OfferedShardings(ModuleKind module, PlannerDevice device) {
  if (module.quantised) {
    return {Sharding::kTableWise, Sharding::kRowWise, Sharding::kColumnWise};
  }
  if (!module.pooled) {
    return {Sharding::kDataParallel, Sharding::kTableWise, Sharding::kColumnWise,
            Sharding::kRowWise};
  }
  std::vector<Sharding> types = {Sharding::kDataParallel, Sharding::kTableWise,
                                 Sharding::kColumnWise, Sharding::kTableColumnWise};
  if (device == PlannerDevice::kCuda) {
    types.insert(types.end(), {Sharding::kRowWise, Sharding::kTableRowWise, Sharding::kGrid});
  }
  return types;
}

std::vector<Kernel> OfferedKernels(ModuleKind module, Sharding sharding, PlannerDevice device) {
  const bool cuda = device == PlannerDevice::kCuda;
  if (module.quantised) {
    if (!cuda) return {Kernel::kQuant};
    return {Kernel::kQuant, Kernel::kQuantUvm, Kernel::kQuantUvmCaching};
  }
  if (sharding == Sharding::kDataParallel) return {Kernel::kDense};
  if (!cuda) return {Kernel::kFused};
  return {Kernel::kFused,    Kernel::kFusedUvm,        Kernel::kFusedUvmCaching,
          Kernel::kKeyValue, Kernel::kSsdVirtualTable, Kernel::kDramVirtualTable};
}

}  // namespace hotbed::torchrec
