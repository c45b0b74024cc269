// Integers: arithmetic, comparisons, moves and selections.
#include <algorithm>
#include <string>

#include "tests/device/ptx/ptx_lanes.h"

namespace hotbed {
namespace device {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

// In 64 bits without a sign, as overflow wraps; the caller's type cuts it.
template <typename T>
uint64_t Wide(T value) {
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

template <typename T>
struct Add {
  static T Do(T a, T b) { return static_cast<T>(Wide(a) + Wide(b)); }
};
template <typename T>
struct Sub {
  static T Do(T a, T b) { return static_cast<T>(Wide(a) - Wide(b)); }
};
template <typename T>
struct MulLow {
  static T Do(T a, T b) { return static_cast<T>(Wide(a) * Wide(b)); }
};
template <typename T>
struct MulHigh {
  static T Do(T a, T b) {
    if constexpr (sizeof(T) == 8) {
      using Longer = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
      return static_cast<T>(static_cast<Longer>(a) * b >> 64);
    } else {
      using Longer = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
      return static_cast<T>(static_cast<Longer>(a) * b >> 8 * sizeof(T));
    }
  }
};
template <typename T, typename To>
struct MulWide {
  static To Do(T a, T b) { return static_cast<To>(a) * static_cast<To>(b); }
};
template <typename T>
struct MadLow {
  static T Do(T a, T b, T c) { return static_cast<T>(Wide(a) * Wide(b) + Wide(c)); }
};
template <typename T, typename To>
struct MadWide {
  static To Do(T a, T b, To c) {
    return static_cast<To>(Wide(static_cast<To>(a) * static_cast<To>(b)) + Wide(c));
  }
};
// By zero there is no defined result; ~0 is what a GPU gives.
template <typename T>
struct Div {
  static T Do(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - Wide(a));
    return static_cast<T>(a / b);
  }
};
template <typename T>
struct Rem {
  static T Do(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
template <typename T>
struct Min {
  static T Do(T a, T b) { return std::min(a, b); }
};
template <typename T>
struct Max {
  static T Do(T a, T b) { return std::max(a, b); }
};
template <typename T>
struct Neg {
  static T Do(T a) { return static_cast<T>(0 - Wide(a)); }
};
template <typename T>
struct Abs {
  static T Do(T a) { return a < 0 ? static_cast<T>(0 - Wide(a)) : a; }
};
template <typename T>
struct Same {
  static T Do(T a) { return a; }
};
template <typename T>
struct Equal {
  static bool Do(T a, T b) { return a == b; }
};
template <typename T>
struct NotEqual {
  static bool Do(T a, T b) { return a != b; }
};
template <typename T>
struct Less {
  static bool Do(T a, T b) { return a < b; }
};
template <typename T>
struct LessEqual {
  static bool Do(T a, T b) { return a <= b; }
};
template <typename T>
struct Greater {
  static bool Do(T a, T b) { return a > b; }
};
template <typename T>
struct GreaterEqual {
  static bool Do(T a, T b) { return a >= b; }
};

template <typename T>
void Select(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  auto* const to = warp->Lanes<LaneBits<T>>(in.to[0]);
  const auto* const a = warp->Lanes<LaneBits<T>>(in.from[0]);
  const auto* const b = warp->Lanes<LaneBits<T>>(in.from[1]);
  const uint32_t first = warp->Mask(in.from[2]);
  ForLanes(lanes, [&](uint32_t l) { to[l] = (first >> l & 1) != 0 ? a[l] : b[l]; });
}

template <typename T>
constexpr const char* BinaryShape() {
  return sizeof(T) == 8 ? "d=dd" : "w=ww";
}

template <typename T>
void AddOfType(const std::string& type, OperationTable* table) {
  OperationTable& t = *table;
  const auto kPlain = OperationKind::kPlain;
  const char* const two = BinaryShape<T>();
  const char* const one = UnaryShape<T, T>();
  t["add." + type] = {kPlain, two, &Binary<T, T, T, Add<T>>};
  t["sub." + type] = {kPlain, two, &Binary<T, T, T, Sub<T>>};
  t["mul.lo." + type] = {kPlain, two, &Binary<T, T, T, MulLow<T>>};
  t["mul.hi." + type] = {kPlain, two, &Binary<T, T, T, MulHigh<T>>};
  t["mad.lo." + type] = {kPlain, sizeof(T) == 8 ? "d=ddd" : "w=www", &Ternary<T, T, T, MadLow<T>>};
  t["div." + type] = {kPlain, two, &Binary<T, T, T, Div<T>>};
  t["rem." + type] = {kPlain, two, &Binary<T, T, T, Rem<T>>};
  t["min." + type] = {kPlain, two, &Binary<T, T, T, Min<T>>};
  t["max." + type] = {kPlain, two, &Binary<T, T, T, Max<T>>};
  if constexpr (std::is_signed_v<T>) {
    t["neg." + type] = {kPlain, one, &Unary<T, T, Neg<T>>};
    t["abs." + type] = {kPlain, one, &Unary<T, T, Abs<T>>};
  }
  const char* const both = CompareShape<T>();
  t["setp.eq." + type] = {kPlain, both, &Compare<T, Equal<T>>};
  t["setp.ne." + type] = {kPlain, both, &Compare<T, NotEqual<T>>};
  t["setp.lt." + type] = {kPlain, both, &Compare<T, Less<T>>};
  t["setp.le." + type] = {kPlain, both, &Compare<T, LessEqual<T>>};
  t["setp.gt." + type] = {kPlain, both, &Compare<T, Greater<T>>};
  t["setp.ge." + type] = {kPlain, both, &Compare<T, GreaterEqual<T>>};
}

template <typename T, typename To>
void AddWide(const std::string& type, OperationTable* table) {
  const auto kPlain = OperationKind::kPlain;
  const bool to_wide = sizeof(To) == 8;
  (*table)["mul.wide." + type] = {kPlain, to_wide ? "d=ww" : "w=ww",
                                  &Binary<To, T, T, MulWide<T, To>>};
  (*table)["mad.wide." + type] = {kPlain, to_wide ? "d=wwd" : "w=www",
                                  &Ternary<To, T, To, MadWide<T, To>>};
}

// Types that only say how wide a register is: letters b, u, s and f of each width.
template <typename T>
void AddUntyped(const std::string& bits, OperationTable* table) {
  const char* const shape = sizeof(T) == 8 ? "d=ddp" : "w=wwp";
  for (const char* letter : {"b", "u", "s", "f"}) {
    const std::string type = letter + bits;
    Operation select = {OperationKind::kPlain, shape, &Select<T>};
    select.selects = true;
    (*table)["selp." + type] = select;
    (*table)["mov." + type] = {OperationKind::kPlain, UnaryShape<T, T>(), &Unary<T, T, Same<T>>};
  }
  (*table)["setp.eq.b" + bits] = {OperationKind::kPlain, CompareShape<T>(), &Compare<T, Equal<T>>};
  (*table)["setp.ne.b" + bits] = {OperationKind::kPlain, CompareShape<T>(),
                                  &Compare<T, NotEqual<T>>};
}

}  // namespace

void AddIntegerOperations(OperationTable* table) {
  AddOfType<int16_t>("s16", table);
  AddOfType<uint16_t>("u16", table);
  AddOfType<int32_t>("s32", table);
  AddOfType<uint32_t>("u32", table);
  AddOfType<int64_t>("s64", table);
  AddOfType<uint64_t>("u64", table);
  AddWide<int16_t, int32_t>("s16", table);
  AddWide<uint16_t, uint32_t>("u16", table);
  AddWide<int32_t, int64_t>("s32", table);
  AddWide<uint32_t, uint64_t>("u32", table);
  AddUntyped<uint16_t>("16", table);
  AddUntyped<uint32_t>("32", table);
  AddUntyped<uint64_t>("64", table);
}

}  // namespace device
}  // namespace hotbed
