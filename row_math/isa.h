// How row arithmetic is compiled more than once in one program and still has one meaning.
//
// The CPU kernels include row_math from several files that are compiled for different instruction
// sets. The linker would keep one definition of a plain inline function, and a
// machine without AVX-512 could run the one compiled for AVX-512. So every function here is forced
// inline and lives in an inline namespace named after the file's instruction set. All variants
// compute the same bits: contraction is off, and every sum has a fixed order.
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

// For functions that are long and the same for all kinds of rows: called, not inlined, with one
// definition per instruction set, kept apart by the inline namespace.
#if defined(__CUDACC__)
#define HOTBED_ROW_CALL __host__ __device__ inline
#else
#define HOTBED_ROW_CALL inline __attribute__((noinline))
#endif

// For lambdas. GCC treats a function that only prefetches as one without effect and drops calls
// that it has not inlined yet; with this attribute it inlines them first.
#define HOTBED_ALWAYS_INLINE __attribute__((always_inline))

// Before a loop whose iterations touch different elements. Without it, pointers to bytes might
// alias anything, and every loop would begin with a check for that.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define HOTBED_INDEPENDENT _Pragma("GCC ivdep")
#else
#define HOTBED_INDEPENDENT
#endif

#endif  // HOTBED_ROW_MATH_ISA_H_
