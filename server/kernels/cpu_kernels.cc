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

class InlineCpuKernels : public RowKernels {
 public:
  bool Submit(ProbeBatch* batch, Done) override { return Run(set_.probe, batch); }
  bool Submit(GatherBatch* batch, Done) override { return Run(set_.gather, batch); }
  bool Submit(GatherPooledBatch* batch, Done) override { return Run(set_.gather_pooled, batch); }
  bool Submit(ApplyBatch* batch, Done) override { return Run(set_.apply, batch); }
  bool Submit(InsertBatch* batch, Done) override { return Run(set_.insert, batch); }
  bool Submit(EvictBatch* batch, Done) override { return Run(set_.evict, batch); }
  bool Submit(CollectBatch* batch, Done) override { return Run(set_.collect, batch); }
  bool Submit(ReindexBatch* batch, Done) override { return Run(set_.reindex, batch); }

 private:
  template <typename Batch>
  static bool Run(void (*kernel)(Batch*), Batch* batch) {
    kernel(batch);
    return true;
  }

  const CpuKernelSet& set_ = CpuKernels();
};

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

RowKernels* CpuRowKernels() {
  static InlineCpuKernels* const kernels = new InlineCpuKernels();
  return kernels;
}

}  // namespace hotbed
