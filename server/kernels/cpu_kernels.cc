#include "server/kernels/cpu_kernels.h"

#include <cstdlib>
#include <cstring>

namespace hotbed {

extern const CpuKernelSet kCpuKernels_base;
#if defined(HOTBED_HAVE_X86_KERNELS)
extern const CpuKernelSet kCpuKernels_avx2;
extern const CpuKernelSet kCpuKernels_avx512;
#endif

namespace {

const CpuKernelSet* ChooseCpuKernels() {
  const CpuKernelSets sets = AvailableCpuKernelSets();
  const char* forced = std::getenv("HOTBED_CPU_ISA");
  for (int i = 0; forced != nullptr && i < sets.count; ++i) {
    if (std::strcmp(sets.sets[i]->name, forced) == 0) return sets.sets[i];
  }
  return sets.sets[0];
}

#if defined(HOTBED_HAVE_X86_KERNELS)
// The levels x86-64-v3 and v4 by the features that tell them apart: clang 14 knows no level's name.
bool CpuHasX86V3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
}

bool CpuHasX86V4() {
  return CpuHasX86V3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace

CpuKernelSets AvailableCpuKernelSets() {
  CpuKernelSets sets = {};
#if defined(HOTBED_HAVE_X86_KERNELS)
  __builtin_cpu_init();
  if (CpuHasX86V4()) sets.sets[sets.count++] = &kCpuKernels_avx512;
  if (CpuHasX86V3()) sets.sets[sets.count++] = &kCpuKernels_avx2;
#endif
  sets.sets[sets.count++] = &kCpuKernels_base;
  return sets;
}

const CpuKernelSet& CpuKernels() {
  static const CpuKernelSet* const chosen = ChooseCpuKernels();
  return *chosen;
}

}  // namespace hotbed
