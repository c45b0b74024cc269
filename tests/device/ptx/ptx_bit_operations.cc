// Bits: logic, shifts, counts, permutations of bytes, and predicates.
#include <string>

#include "tests/device/ptx/ptx_lanes.h"

namespace hotbed {
namespace device {
namespace {

template <typename T>
struct And {
  static T Do(T a, T b) { return static_cast<T>(a & b); }
};
template <typename T>
struct Or {
  static T Do(T a, T b) { return static_cast<T>(a | b); }
};
template <typename T>
struct Xor {
  static T Do(T a, T b) { return static_cast<T>(a ^ b); }
};
template <typename T>
struct Not {
  static T Do(T a) { return static_cast<T>(~a); }
};
// Shifts by the width or more leave nothing, or the sign.
template <typename T>
struct Shl {
  static T Do(T a, uint32_t by) {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<uint64_t>(a) << by);
  }
};
template <typename T>
struct Shr {
  static T Do(T a, uint32_t by) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if (by < kBits) return static_cast<T>(a >> by);
    return static_cast<T>(a >> (kBits - 1) >> 1);
  }
};
template <bool kLeft>
struct Funnel {
  static uint32_t Do(uint32_t low, uint32_t high, uint32_t by) {
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<uint32_t>(kLeft ? both << (by & 31) >> 32 : both >> (by & 31));
  }
};
struct Prmt {
  static uint32_t Do(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t pick = selector >> 4 * i & 15;
      uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (pick & 7)) & 0xff;
      if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // its sign, eight times
      result |= byte << 8 * i;
    }
    return result;
  }
};
struct Brev {
  static uint32_t Do(uint32_t a) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < 32; ++i) result |= (a >> i & 1) << (31 - i);
    return result;
  }
};
// Finds the highest set bit: its place, or how far it must be shifted to become the highest.
template <bool kShift>
struct Bfind {
  static uint32_t Do(uint32_t a) {
    if (a == 0) return 0xffffffffu;
    const uint32_t zeros = static_cast<uint32_t>(__builtin_clz(a));
    return kShift ? zeros : 31 - zeros;
  }
};
struct Clz32 {
  static uint32_t Do(uint32_t a) { return a == 0 ? 32 : static_cast<uint32_t>(__builtin_clz(a)); }
};
struct Clz64 {
  static uint32_t Do(uint64_t a) { return a == 0 ? 64 : static_cast<uint32_t>(__builtin_clzll(a)); }
};
struct Popc32 {
  static uint32_t Do(uint32_t a) { return static_cast<uint32_t>(__builtin_popcount(a)); }
};
struct Popc64 {
  static uint32_t Do(uint64_t a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }
};

void SetMask(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes, uint32_t value) {
  uint32_t& to = warp->Mask(in.to[0]);
  to = (to & ~lanes) | (value & lanes);
}
void AndPredicates(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  SetMask(warp, in, lanes, warp->Mask(in.from[0]) & warp->Mask(in.from[1]));
}
void OrPredicates(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  SetMask(warp, in, lanes, warp->Mask(in.from[0]) | warp->Mask(in.from[1]));
}
void XorPredicates(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  SetMask(warp, in, lanes, warp->Mask(in.from[0]) ^ warp->Mask(in.from[1]));
}
void NotPredicate(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  SetMask(warp, in, lanes, ~warp->Mask(in.from[0]));
}
void MovePredicate(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  SetMask(warp, in, lanes, warp->Mask(in.from[0]));
}

// A register into the parts of a vector, the lowest first, and back.
template <typename Whole>
void Unpack(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t bits = 8 * sizeof(Whole) / in.to_count;
  const auto* const from = warp->Lanes<LaneBits<Whole>>(in.from[0]);
  for (uint32_t i = 0; i < in.to_count; ++i) {
    auto* const to = warp->Lanes<uint32_t>(in.to[i]);
    ForLanes(lanes, [&](uint32_t l) {
      const uint64_t part = static_cast<uint64_t>(from[l]) >> bits * i;
      to[l] = static_cast<uint32_t>(part & (~0ull >> (64 - bits)));
    });
  }
}
// The lowest `length` bits of the first into the second, from bit `at` on.
template <typename T>
void InsertBits(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(lanes, [&](uint32_t l) {
    const uint32_t at = warp->Lanes<uint32_t>(in.from[2])[l] & 0xff;
    const uint32_t length = warp->Lanes<uint32_t>(in.from[3])[l] & 0xff;
    const T ones = length >= kBits ? ~T{0} : (T{1} << length) - 1;
    const T mask = at >= kBits ? T{0} : ones << at;
    const T inserted = at >= kBits ? T{0} : warp->Lanes<T>(in.from[0])[l] << at;
    const T into = warp->Lanes<T>(in.from[1])[l];
    warp->Lanes<T>(in.to[0])[l] = (into & ~mask) | (inserted & mask);
  });
}

template <typename Whole>
void Pack(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t bits = 8 * sizeof(Whole) / in.from_count;
  auto* const to = warp->Lanes<LaneBits<Whole>>(in.to[0]);
  ForLanes(lanes, [&](uint32_t l) {
    uint64_t whole = 0;
    for (uint32_t i = 0; i < in.from_count; ++i) {
      whole |= uint64_t{warp->Lanes<uint32_t>(in.from[i])[l]} << bits * i;
    }
    to[l] = static_cast<LaneBits<Whole>>(whole);
  });
}

template <typename T, typename Signed>
void AddOfWidth(const std::string& bits, OperationTable* table) {
  OperationTable& t = *table;
  const auto kPlain = OperationKind::kPlain;
  const bool is_double = sizeof(T) == 8;
  const char* const two = is_double ? "d=dd" : "w=ww";
  const char* const shift = is_double ? "d=dw" : "w=ww";
  t["and.b" + bits] = {kPlain, two, &Binary<T, T, T, And<T>>};
  t["or.b" + bits] = {kPlain, two, &Binary<T, T, T, Or<T>>};
  t["xor.b" + bits] = {kPlain, two, &Binary<T, T, T, Xor<T>>};
  t["not.b" + bits] = {kPlain, UnaryShape<T, T>(), &Unary<T, T, Not<T>>};
  t["shl.b" + bits] = {kPlain, shift, &Binary<T, T, uint32_t, Shl<T>>};
  t["shr.u" + bits] = {kPlain, shift, &Binary<T, T, uint32_t, Shr<T>>};
  t["shr.b" + bits] = t["shr.u" + bits];
  t["shr.s" + bits] = {kPlain, shift, &Binary<Signed, Signed, uint32_t, Shr<Signed>>};
}

}  // namespace

void AddBitOperations(OperationTable* table) {
  OperationTable& t = *table;
  const auto kPlain = OperationKind::kPlain;
  using U = uint32_t;
  AddOfWidth<uint16_t, int16_t>("16", table);
  AddOfWidth<uint32_t, int32_t>("32", table);
  AddOfWidth<uint64_t, int64_t>("64", table);
  t["prmt.b32"] = {kPlain, "w=www", &Ternary<U, U, U, Prmt>};
  t["shf.l.wrap.b32"] = {kPlain, "w=www", &Ternary<U, U, U, Funnel<true>>};
  t["shf.r.wrap.b32"] = {kPlain, "w=www", &Ternary<U, U, U, Funnel<false>>};
  t["bfi.b32"] = {kPlain, "w=wwww", &InsertBits<uint32_t>};
  t["bfi.b64"] = {kPlain, "d=ddww", &InsertBits<uint64_t>};
  t["brev.b32"] = {kPlain, "w=w", &Unary<U, U, Brev>};
  t["bfind.u32"] = {kPlain, "w=w", &Unary<U, U, Bfind<false>>};
  t["bfind.shiftamt.u32"] = {kPlain, "w=w", &Unary<U, U, Bfind<true>>};
  t["clz.b32"] = {kPlain, "w=w", &Unary<U, U, Clz32>};
  t["clz.b64"] = {kPlain, "w=d", &Unary<U, uint64_t, Clz64>};
  t["popc.b32"] = {kPlain, "w=w", &Unary<U, U, Popc32>};
  t["popc.b64"] = {kPlain, "w=d", &Unary<U, uint64_t, Popc64>};
  t["and.pred"] = {kPlain, "p=pp", &AndPredicates};
  t["or.pred"] = {kPlain, "p=pp", &OrPredicates};
  t["xor.pred"] = {kPlain, "p=pp", &XorPredicates};
  t["not.pred"] = {kPlain, "p=p", &NotPredicate};
  t["mov.pred"] = {kPlain, "p=p", &MovePredicate};
  t["mov.b32.unpack"] = {kPlain, "V=w", &Unpack<uint32_t>};
  t["mov.b64.unpack"] = {kPlain, "V=d", &Unpack<uint64_t>};
  t["mov.b32.pack"] = {kPlain, "w=V", &Pack<uint32_t>};
  t["mov.b64.pack"] = {kPlain, "d=V", &Pack<uint64_t>};
  t["mov.b64.pack"].packs = true;
}

}  // namespace device
}  // namespace hotbed
