// That each check of the interpreter can fail, on kernels with one bug each, and that what PTX
// promises holds. Takes the PTX of planted_bugs.cu; exit status 1 if anything is not as it must be.
#include "tests/device/ptx/ptx_machine.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace hotbed {
namespace device {
namespace {

int checks = 0, wrong = 0;

void Check(bool holds, const std::string& what) {
  ++checks;
  if (holds) return;
  ++wrong;
  std::printf("WRONG: %s\n", what.c_str());
}

// Device memory of 128 words, and a machine that knows of it.
struct Bench {
  explicit Bench(const PtxMachineOptions& options = {}) : machine(options) {
    machine.memory().Add(words, sizeof(words));
  }
  // The error; empty if there is none.
  std::string Run(const PtxModule& module, const std::string& name, uint32_t threads,
                  std::vector<PtxArgument> more = {}) {
    const PtxKernel* const kernel = module.Find(name);
    if (kernel == nullptr) return "no kernel " + name;
    const void* const at = words;
    more.insert(more.begin(), {&at, sizeof(at)});
    PtxGrid grid;
    grid.block_threads = threads;
    grid.arrays = arrays;
    std::string error;
    machine.Run(*kernel, grid, more, allowed, &error);
    return error;
  }

  alignas(256) uint32_t words[128] = {};
  std::vector<AllowedReads> allowed;
  const PtxMemory* arrays = nullptr;
  PtxMachine machine;
};

std::string Finding(const std::string& name, uint64_t seed, const std::string& error,
                    const std::string& wanted) {
  return name + ", order " + std::to_string(seed) + ": \"" + error + "\" " + wanted;
}

// In step and in ten random orders.
void ExpectAlways(const PtxModule& module, const std::string& name, uint32_t threads,
                  const std::vector<PtxArgument>& more, const std::vector<std::string>& parts) {
  for (uint64_t seed = 0; seed <= 10; ++seed) {
    PtxMachineOptions options;
    options.order_seed = seed;
    Bench bench(options);
    const std::string error = bench.Run(module, name, threads, more);
    if (parts.empty()) Check(error.empty(), Finding(name, seed, error, "must pass"));
    for (const std::string& part : parts) {
      Check(error.find(part) != std::string::npos, Finding(name, seed, error, "must name " + part));
    }
  }
}

void MemoryChecks(const PtxModule& module) {
  const uint32_t inside = 96, beyond = 97, far = 4000000;
  ExpectAlways(module, "OutOfBounds", 32, {{&inside, 4}}, {});
  ExpectAlways(module, "OutOfBounds", 32, {{&beyond, 4}},
               {"OutOfBounds", "PTX line", "lane 31", "outside of all device memory"});
  ExpectAlways(module, "OutOfBounds", 32, {{&far, 4}}, {"outside of all device memory"});
  const uint32_t aligned = 16, half = 8;
  Bench target;
  const void* const out = target.words;
  for (const uint32_t* from : {&aligned, &half}) {
    Bench bench;
    bench.machine.memory().Add(target.words, sizeof(target.words));
    bench.words[4] = 77;
    const std::string error = bench.Run(module, "WideLoad", 32, {{&out, 8}, {from, 4}});
    if (from == &aligned) {
      Check(error.empty() && target.words[0] == 77, "an aligned load of 16 bytes: " + error);
    } else {
      Check(error.find("misaligned") != std::string::npos, "16 bytes at 8: " + error);
      Check(error.find("ld.global.v4.u32") != std::string::npos, "the instruction: " + error);
    }
  }
  PtxMemory array;
  Bench part;
  array.Add(part.words, 4 * 127);
  part.arrays = &array;
  Check(part.Run(module, "OutOfBounds", 32, {{&aligned, 4}}).empty(), "inside of an array");
  Check(part.Run(module, "OutOfBounds", 32, {{&inside, 4}}).find("lane 31: 4 bytes") !=
            std::string::npos,
        "memory of the device, but of no array");
  Bench freed;
  freed.machine.memory().Remove(freed.words);
  Check(!freed.Run(module, "GoodNeighbours", 32).empty(), "memory that was freed");
}

void RaceChecks(const PtxModule& module) {
  ExpectAlways(module, "GoodNeighbours", 64, {}, {});
  ExpectAlways(module, "NeighboursWithoutSync", 32, {}, {"race", "write", "read"});
  ExpectAlways(module, "NeighboursAfterShuffle", 32, {}, {"race", "write", "read"});
  ExpectAlways(module, "HalvesApart", 32, {}, {"race"});
  ExpectAlways(module, "SameValueByAll", 32, {}, {"race, two writes"});
  ExpectAlways(module, "TwoWarpsOneByte", 32, {}, {});
  ExpectAlways(module, "TwoWarpsOneByte", 64, {}, {"race, two writes", "lane 3"});
  ExpectAlways(module, "OneWarpReadsAnothers", 64, {}, {"race", "read"});
  ExpectAlways(module, "AtomicsOnly", 64, {}, {});
  ExpectAlways(module, "AtomicsAndReads", 64, {}, {"race", "atomic"});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const char* name : {"AtomicsAndReads", "AtomicsAndWideReads"}) {
      const bool there = seed % 2 == 0;
      PtxMachineOptions options;
      options.order_seed = seed / 2;
      Bench bench(options);
      const uint64_t begin = reinterpret_cast<uintptr_t>(bench.words);
      bench.allowed.push_back({begin, begin + 128, 128, there ? 0u : 64u});
      const bool allowed = there && std::strcmp(name, "AtomicsAndReads") == 0;
      const std::string error = bench.Run(module, name, 64);
      Check(error.empty() == allowed, std::string(name) + " with reads allowed: " + error);
    }
  }
}

// Code that relies on lanes in step is right in step, and wrong in some other order.
void OrderChecks(const PtxModule& module) {
  int wrong_orders = 0, wrong_with_sync = 0;
  for (uint64_t seed = 0; seed <= 40; ++seed) {
    for (const char* name : {"NeighboursWithoutSync", "GoodNeighbours"}) {
      PtxMachineOptions options;
      options.order_seed = seed;
      options.check_races = false;
      Bench bench(options);
      Check(bench.Run(module, name, 32).empty(), name);
      bool right = true;
      for (uint32_t i = 0; i < 32; ++i) right = right && bench.words[i] == 100 + (i + 1) % 32;
      if (seed == 0) Check(right, std::string(name) + " in step");
      (name[0] == 'N' ? wrong_orders : wrong_with_sync) += !right;
    }
  }
  Check(wrong_orders > 0, "no order of 40 shows that a sync is missing");
  Check(wrong_with_sync == 0, "an order makes good code wrong");
}

void SyncChecks(const PtxModule& module) {
  const uint32_t low = 0xffff, all = 0xffffffff, high = 0xffff0000;
  ExpectAlways(module, "BallotOfSome", 32, {{&low, 4}}, {});
  ExpectAlways(module, "BallotOfSome", 32, {{&all, 4}}, {"vote.sync.ballot", "0xffffffff"});
  ExpectAlways(module, "BallotOfSome", 32, {{&high, 4}}, {"does not name it"});
  ExpectAlways(module, "ShuffleInBranch", 32, {}, {"waits at PTX line"});
  const uint32_t inside = 3, outside = 20;
  ExpectAlways(module, "ShuffleFromOutside", 32, {{&inside, 4}}, {});
  ExpectAlways(module, "ShuffleFromOutside", 32, {{&outside, 4}}, {"reads lane 20"});
  PtxMachineOptions options;
  options.steps_max = 100000;
  Bench bench(options);
  Check(bench.Run(module, "WaitsForNobody", 32).find("no end") != std::string::npos,
        "a loop without end");
  for (uint64_t seed = 0; seed < 10; ++seed) {
    options = {};
    options.order_seed = seed;
    Bench part(options);
    part.words[64] = 5;
    const std::string error = part.Run(module, "PartAndMeet", 32);
    uint32_t sums[32], total = 0;
    for (uint32_t i = 0; i < 32; ++i) total += sums[i] = i + 5 * (i * (i - 1) / 2);
    bool right = error.empty();
    for (uint32_t i = 0; i < 32; ++i) right = right && part.words[i] == total + sums[i];
    Check(right, "PartAndMeet, order " + std::to_string(seed) + ": " + error);
  }
}

std::string Around(const std::string& body) {
  return ".version 9.0\n.target sm_90\n.address_size 64\n"
         ".visible .entry Small(\n.param .u64 Small_param_0\n)\n{\n"
         ".local .align 8 .b8 depot[16];\n"
         ".reg .pred %p<5>;\n.reg .b32 %r<10>;\n.reg .b64 %rd<20>;\n"
         "ld.param.u64 %rd10, [Small_param_0];\nld.global.u64 %rd1, [%rd10];\n"
         "ld.global.u64 %rd2, [%rd10+8];\nld.global.u64 %rd3, [%rd10+16];\n"
         "cvt.u32.u64 %r1, %rd1;\ncvt.u32.u64 %r2, %rd2;\ncvt.u32.u64 %r3, %rd3;\n"
         "mov.u32 %r9, %tid.x;\nsetp.eq.s32 %p4, %r9, 0;\n" +
         body + "\nret;\n}\n";
}

void ParserChecks() {
  const std::pair<const char*, const char*> wrong_texts[] = {
      {"frob.b32 %r4, %r1;", "t.ptx:21: an opcode that is not known: frob.b32"},
      {"add.s32 %r4, %r1;", "add.s32: 2 operands, expected 3"},
      {"add.s32 %r4, %r1, %rd1;", "another width: %rd1"},
      {"add.s32 %r4, %r1, %q1;", "not declared: %q1"},
      {"add.s32 %r4, %r1, %r77;", "not declared: %r77"},
      {"bra nowhere;", "leads nowhere: nowhere"},
      {".shared .b8 room[4];", "a directive that is not known: .shared"},
      {"add.s32 %r4, %r1, 5x;", "operand: 5x"},
  };
  for (const auto& [text, expected] : wrong_texts) {
    PtxModule module;
    std::string error;
    const bool parsed = module.Parse("t.ptx", Around(text), &error);
    Check(!parsed && error.find(expected) != std::string::npos, text + (": " + error));
  }
  for (const char* text : {"st.global.u32 [%rd10], %r5;", "@%p1 st.global.u32 [%rd10], %r1;",
                           "ld.local.u32 %r4, [depot];\nst.global.u32 [%rd10], %r4;",
                           "add.s32 %r4, %r5, 1;\nst.global.u32 [%rd10], %r4;",
                           "mov.b64 %rd4, {%r5, %r1};\ncvt.u32.u64 %r4, %rd4;\n"
                           "st.global.u32 [%rd10], %r4;",
                           "mov.b64 %rd4, {%r1, %r5};\nst.global.u64 [%rd10], %rd4;"}) {
    PtxModule module;
    std::string error;
    Check(module.Parse("t.ptx", Around(text), &error), error);
    Bench bench;
    error = bench.Run(module, "Small", 32);
    Check(error.find("never written") != std::string::npos, text + (": " + error));
  }
}

// An operation of %r1 to %r3, or of %rd1 to %rd3, with its result in %r4 or %rd4.
struct Sample {
  const char* text;
  uint64_t a, b, c;
  uint64_t expected;
};

const Sample kSamples[] = {
    {"mov.b64 %rd2, {%r1, %r5};\ncvt.u32.u64 %r4, %rd2;", 7, 0, 0, 7},  // %r5 is never written
    {"bfi.b32 %r4, %r1, %r2, 8, 4;", 0xfff5, 0x12345678, 0, 0x12345578},
    {"bfi.b32 %r4, %r1, %r2, 8, 255;", 0xab, 0x12345678, 0, 0x0000ab78},
    {"bfi.b64 %rd4, %rd1, %rd2, 56, 8;", 0x1ff, 0x0011223344556677, 0, 0xff11223344556677},
    {"bfi.b64 %rd4, %rd1, %rd2, 64, 8;", 0x1ff, 0x0011223344556677, 0, 0x0011223344556677},
    {"prmt.b32 %r4, %r1, 0, 0xba98;", 0x80017f00, 0, 0, 0xff000000},
    {"prmt.b32 %r4, %r1, %r2, 0x7531;", 0x44332211, 0x88776655, 0, 0x88664422},
    {"bfind.shiftamt.u32 %r4, %r1;", 0x00010000, 0, 0, 15},
    {"bfind.shiftamt.u32 %r4, %r1;", 0, 0, 0, 0xffffffff},
    {"bfind.u32 %r4, %r1;", 0x00010000, 0, 0, 16},
    {"brev.b32 %r4, %r1;", 0x80000003, 0, 0, 0xc0000001},
    {"clz.b32 %r4, %r1;", 0, 0, 0, 32},
    {"popc.b32 %r4, %r1;", 0xf0f0, 0, 0, 8},
    {"shl.b32 %r4, %r1, %r2;", 3, 32, 0, 0},
    {"shl.b32 %r4, %r1, %r2;", 3, 31, 0, 0x80000000},
    {"shr.s32 %r4, %r1, %r2;", 0x80000000, 40, 0, 0xffffffff},
    {"shr.u32 %r4, %r1, %r2;", 0x80000000, 40, 0, 0},
    {"shr.s32 %r4, %r1, -1;", 0x80000000, 0, 0, 0xffffffff},
    {"add.s16 %r4, %r1, %r2;", 0xffff, 2, 0, 1},
    {"setp.gt.s16 %p1, %r1, -1;\nselp.b32 %r4, 1, 2, %p1;", 0x8000, 0, 0, 2},
    {"setp.gt.u16 %p1, %r1, %r2;\nselp.b32 %r4, 1, 2, %p1;", 0x8000, 5, 0, 1},
    {"mul.hi.u32 %r4, %r1, %r2;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
    {"mul.hi.s32 %r4, %r1, %r2;", 0xffffffff, 0xffffffff, 0, 0},
    {"mul.wide.u32 %rd4, %r1, %r2;", 0xffffffff, 2, 0, 0x1fffffffe},
    {"mul.wide.s32 %rd4, %r1, %r2;", 0xffffffff, 2, 0, 0xfffffffffffffffe},
    {"mad.lo.s32 %r4, %r1, %r2, %r3;", 7, 0xffffffff, 10, 3},
    {"sub.s64 %rd4, %rd1, %rd2;", 1, 2, 0, ~0ull},
    {"mul.hi.u64 %rd4, %rd1, %rd2;", ~0ull, 3, 0, 2},
    {"cvt.s32.s8 %r4, %r1;", 0x1ff, 0, 0, 0xffffffff},
    {"cvt.u64.u32 %rd4, %r1;", 0xfffffffff, 0, 0, 0xffffffff},
    {"cvt.s64.s32 %rd4, %r1;", 0xffffffff, 0, 0, ~0ull},
    {"cvt.rzi.s32.f32 %r4, %r1;", 0xbfffffff, 0, 0, 0xffffffff},  // -1.99..
    {"cvt.rzi.s32.f32 %r4, %r1;", 0x7fc00000, 0, 0, 0},           // NaN
    {"cvt.rzi.s32.f32 %r4, %r1;", 0x4f000000, 0, 0, 0x7fffffff},  // 2^31
    {"cvt.rzi.u32.f32 %r4, %r1;", 0xbf800000, 0, 0, 0},           // -1
    {"cvt.rn.f32.s32 %r4, %r1;", 16777217, 0, 0, 0x4b800000},     // a tie, to even
    {"cvt.f64.f32 %rd4, %r1;", 0x3f800000, 0, 0, 0x3ff0000000000000},
    {"add.rn.f32 %r4, %r1, %r2;", 1, 1, 0, 2},                             // subnormals
    {"sub.rn.f32 %r4, %r1, %r2;", 0x7f800000, 0x7f800000, 0, 0x7fffffff},  // one NaN
    {"add.rn.f32 %r4, %r1, %r2;", 0xffc12345, 0x3f800000, 0, 0x7fffffff},
    {"mul.rn.f32 %r4, %r1, %r2;", 0x80000000, 0x3f800000, 0, 0x80000000},
    {"neg.f32 %r4, %r1;", 0, 0, 0, 0x80000000},
    {"min.f32 %r4, %r1, %r2;", 0x7fc00000, 0x3f800000, 0, 0x3f800000},
    {"max.f32 %r4, %r1, %r2;", 0x80000000, 0, 0, 0},
    {"fma.rn.f32 %r4, %r1, %r2, %r3;", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000},
    {"setp.leu.f32 %p1, %r1, %r2;\nselp.b32 %r4, 1, 2, %p1;", 0x7fc00000, 0, 0, 1},
    {"setp.le.f32 %p1, %r1, %r2;\nselp.b32 %r4, 1, 2, %p1;", 0x7fc00000, 0, 0, 2},
    {"setp.neu.f32 %p1, %r1, 0f00000000;\nselp.b32 %r4, 1, 2, %p1;", 0x80000000, 0, 0, 2},
    {"mov.b32 {%r5, %r6}, %r1;\nmov.b32 %r4, {%r6, %r5};", 0x12345678, 0, 0, 0x56781234},
    {"div.u32 %r4, %r1, %r2;", 7, 2, 0, 3},
    {"st.local.u64 [depot+8], %rd1;\nld.local.u16 %r4, [depot+10];", 0x123456789a, 0, 0, 0x3456},
    {"mov.u64 %rd5, depot;\ncvta.local.u64 %rd6, %rd5;\nst.u32 [%rd6+4], %r9;\nld.u32 %r4, "
     "[%rd6+4];",
     0, 0, 0, 0},
    {"mov.u32 %r5, 4;\nshfl.sync.down.b32 %r4|%p1, %r9, %r5, 0x1f, -1;", 0, 0, 0, 4},
    {"shfl.sync.idx.b32 %r4, %r9, 9, 0x101f, -1;", 0, 0, 0, 9},
    {"shfl.sync.idx.b32 %r4, %r9, 25, 0x101f, -1;", 0, 0, 0, 9},  // in segments of 16
    {"shfl.sync.up.b32 %r4|%p1, %r9, 1, 0, -1;\nselp.b32 %r4, %r4, 50, %p1;", 0, 0, 0, 50},
    {"add.s32 %r5, %r9, 7;\nredux.sync.min.u32 %r4, %r5, -1;", 0, 0, 0, 7},
    {"setp.gt.u32 %p1, %r9, 29;\nvote.sync.ballot.b32 %r4, %p1, -1;", 0, 0, 0, 0xc0000000},
};

void OperationChecks() {
  for (const Sample& sample : kSamples) {
    const bool is_wide = std::strstr(sample.text, "%rd4") != nullptr;
    PtxModule module;
    std::string error;
    const std::string store = std::string(is_wide ? "" : "\ncvt.u64.u32 %rd4, %r4;") +
                              "\n@%p4 st.global.u64 [%rd10+24], %rd4;";
    const bool parsed = module.Parse("t.ptx", Around(sample.text + store), &error);
    Bench bench({0, false});
    const uint64_t values[] = {sample.a, sample.b, sample.c};
    std::memcpy(bench.words, values, sizeof(values));
    if (parsed) error = bench.Run(module, "Small", 32);
    uint64_t made = 0;
    std::memcpy(&made, &bench.words[6], sizeof(made));
    char text[64];
    std::snprintf(text, sizeof(text), ": 0x%llx, not 0x%llx ",
                  static_cast<unsigned long long>(made),
                  static_cast<unsigned long long>(sample.expected));
    Check(error.empty() && made == sample.expected, sample.text + (text + error));
  }
}

void ProfileChecks(const PtxModule& module) {
  PtxMachineOptions options;
  options.profile = true;
  Bench bench(options);
  Check(bench.Run(module, "GoodNeighbours", 32).empty(), "profiled");
  const std::string report = bench.machine.profile().Report({{"GoodNeighbours", 128}});
  // Two stores and a load of a line of 128 bytes, by all lanes; the load is waited for.
  for (const char* part : {"A model, not a measurement", "1.00 global loads, 2.00 global stores",
                           "12.0 sectors, 12.0 of them past", "of 32.0 lanes",
                           "128 registers, 16 warps", "bound by latency"}) {
    Check(report.find(part) != std::string::npos,
          std::string("the profile has no \"") + part + "\": " + report);
  }
}

int Main(int argc, char** argv) {
  PtxModule module;
  std::string error;
  std::ifstream in(argc == 2 ? argv[1] : "");
  std::ostringstream text;
  text << in.rdbuf();
  if (!in.good() || !module.Parse(argv[1], text.str(), &error)) {
    std::fprintf(stderr, "ptx-machine-test FILE: the PTX of planted_bugs.cu; %s\n", error.c_str());
    return 2;
  }
  MemoryChecks(module);
  RaceChecks(module);
  OrderChecks(module);
  SyncChecks(module);
  ParserChecks();
  OperationChecks();
  ProfileChecks(module);
  std::printf("%d checks, %d wrong\n", checks, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace device
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::device::Main(argc, argv); }
