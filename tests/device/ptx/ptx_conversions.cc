// cvt between integers and floats, and cvta.
#include <cmath>
#include <string>

#include "tests/device/ptx/ptx_lanes.h"

namespace hotbed {
namespace device {
namespace {

template <typename To, typename From>
struct Cast {
  static To Do(From a) {
    if constexpr (std::is_floating_point_v<To>) {
      return OneNan(static_cast<To>(a));
    } else {
      return static_cast<To>(a);
    }
  }
};

// Towards zero; beyond the ends the ends, and 0 for a NaN.
template <typename To, typename From>
struct Truncated {
  static To Do(From a) {
    if (a != a) return 0;
    const From low = static_cast<From>(std::numeric_limits<To>::min());
    const From limit = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    if (a <= low) return std::numeric_limits<To>::min();
    if (a >= limit) return std::numeric_limits<To>::max();
    return static_cast<To>(a);
  }
};

template <typename From>
void AddFromInteger(const std::string& from, OperationTable* table) {
  OperationTable& t = *table;
  const auto kPlain = OperationKind::kPlain;
  t["cvt.u16." + from] = {kPlain, UnaryShape<uint16_t, From>(),
                          &Unary<uint16_t, From, Cast<uint16_t, From>>};
  t["cvt.s16." + from] = {kPlain, UnaryShape<int16_t, From>(),
                          &Unary<int16_t, From, Cast<int16_t, From>>};
  t["cvt.u32." + from] = {kPlain, UnaryShape<uint32_t, From>(),
                          &Unary<uint32_t, From, Cast<uint32_t, From>>};
  t["cvt.s32." + from] = {kPlain, UnaryShape<int32_t, From>(),
                          &Unary<int32_t, From, Cast<int32_t, From>>};
  for (const char* to : {"cvt.u16.", "cvt.s16.", "cvt.u32.", "cvt.s32."}) {
    t[to + from].narrows = sizeof(From) == 8;
  }
  t["cvt.u64." + from] = {kPlain, UnaryShape<uint64_t, From>(),
                          &Unary<uint64_t, From, Cast<uint64_t, From>>};
  t["cvt.s64." + from] = {kPlain, UnaryShape<int64_t, From>(),
                          &Unary<int64_t, From, Cast<int64_t, From>>};
  t["cvt.rn.f32." + from] = {kPlain, UnaryShape<float, From>(),
                             &Unary<float, From, Cast<float, From>>};
  t["cvt.rn.f64." + from] = {kPlain, UnaryShape<double, From>(),
                             &Unary<double, From, Cast<double, From>>};
}

template <typename From>
void AddFromFloat(const std::string& from, OperationTable* table) {
  OperationTable& t = *table;
  const auto kPlain = OperationKind::kPlain;
  t["cvt.rzi.s32." + from] = {kPlain, UnaryShape<int32_t, From>(),
                              &Unary<int32_t, From, Truncated<int32_t, From>>};
  t["cvt.rzi.u32." + from] = {kPlain, UnaryShape<uint32_t, From>(),
                              &Unary<uint32_t, From, Truncated<uint32_t, From>>};
  t["cvt.rzi.s64." + from] = {kPlain, UnaryShape<int64_t, From>(),
                              &Unary<int64_t, From, Truncated<int64_t, From>>};
  t["cvt.rzi.u64." + from] = {kPlain, UnaryShape<uint64_t, From>(),
                              &Unary<uint64_t, From, Truncated<uint64_t, From>>};
}

// Global addresses are generic ones; local ones lie in a window.
template <int64_t kAdded>
struct Shifted {
  static uint64_t Do(uint64_t address) { return address + static_cast<uint64_t>(kAdded); }
};

}  // namespace

void AddConversions(OperationTable* table) {
  OperationTable& t = *table;
  const auto kPlain = OperationKind::kPlain;
  constexpr int64_t kWindow = static_cast<int64_t>(kLocalWindow);
  AddFromInteger<uint8_t>("u8", table);
  AddFromInteger<int8_t>("s8", table);
  AddFromInteger<uint16_t>("u16", table);
  AddFromInteger<int16_t>("s16", table);
  AddFromInteger<uint32_t>("u32", table);
  AddFromInteger<int32_t>("s32", table);
  AddFromInteger<uint64_t>("u64", table);
  AddFromInteger<int64_t>("s64", table);
  AddFromFloat<float>("f32", table);
  AddFromFloat<double>("f64", table);
  t["cvt.f64.f32"] = {kPlain, "d=w", &Unary<double, float, Cast<double, float>>};
  t["cvt.rn.f32.f64"] = {kPlain, "w=d", &Unary<float, double, Cast<float, double>>};
  for (const char* same : {"cvta.global.u64", "cvta.to.global.u64"}) {
    t[same] = {kPlain, "d=d", &Unary<uint64_t, uint64_t, Shifted<0>>};
  }
  t["cvta.local.u64"] = {kPlain, "d=d", &Unary<uint64_t, uint64_t, Shifted<kWindow>>};
  t["cvta.to.local.u64"] = {kPlain, "d=d", &Unary<uint64_t, uint64_t, Shifted<-kWindow>>};
}

}  // namespace device
}  // namespace hotbed
