// How row arithmetic is compiled more than once in one program and still has one meaning.
//
// The CPU kernels include row_math from several files that are compiled for different instruction
// sets. A plain inline function would be merged by the linker into whichever copy it saw first, and
// a machine without AVX-512 could be handed the AVX-512 one. So every function here is forced
// inline and lives in an inline namespace named after the file's instruction set. All copies
// compute the same bits: contraction is off, and every sum has a fixed order (DECISIONS N1).
#ifndef HOTBED_ROW_MATH_ISA_H_
#define HOTBED_ROW_MATH_ISA_H_

#include "row_math/types.h"

#ifndef HOTBED_ISA
#define HOTBED_ISA isa_base
#endif

#if defined(__CUDACC__)
#define HOTBED_ROW_FN __host__ __device__ __forceinline__
#else
#define HOTBED_ROW_FN inline __attribute__((always_inline))
#endif

// For what is long and the same for all kinds of rows: one copy an instruction set, called. The
// inline namespace keeps the copies apart.
#if defined(__CUDACC__)
#define HOTBED_ROW_CALL __host__ __device__ inline
#else
#define HOTBED_ROW_CALL inline __attribute__((noinline))
#endif

// For lambdas. GCC takes a function that only prefetches for one without effect and drops the calls
// that it has not yet inlined; with this it inlines them first.
#define HOTBED_ALWAYS_INLINE __attribute__((always_inline))

// Before a loop whose turns touch different elements: without it, pointers to bytes might alias
// anything, and every loop would begin with a check of that.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define HOTBED_INDEPENDENT _Pragma("GCC ivdep")
#else
#define HOTBED_INDEPENDENT
#endif

#endif  // HOTBED_ROW_MATH_ISA_H_
