# The roofs are compiled as well as what they bound.
add_library(hotbed_bench_loops STATIC plain_loops.cc)
target_include_directories(hotbed_bench_loops PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_options(hotbed_bench_loops PRIVATE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
hotbed_executable(tiers_bench SRCS tiers_bench.cc DEPS hotbed_bench_loops hotbed_tiers hotbed_kv hotbed_common)
