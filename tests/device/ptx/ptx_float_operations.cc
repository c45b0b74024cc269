// Floats, in IEEE arithmetic to nearest even with subnormals, as nvcc is told to compile. What a
// GPU only approximates (ex2, sin, ...) is not here: it would not be the same bits.
#include <cmath>
#include <string>

#include "tests/device/ptx/ptx_lanes.h"

namespace hotbed {
namespace device {
namespace {

template <typename T>
struct Add {
  static T Do(T a, T b) { return OneNan(a + b); }
};
template <typename T>
struct Sub {
  static T Do(T a, T b) { return OneNan(a - b); }
};
template <typename T>
struct Mul {
  static T Do(T a, T b) { return OneNan(a * b); }
};
template <typename T>
struct Div {
  static T Do(T a, T b) { return OneNan(a / b); }
};
template <typename T>
struct Fma {
  static T Do(T a, T b, T c) { return OneNan(std::fma(a, b, c)); }
};
template <typename T>
struct Sqrt {
  static T Do(T a) { return OneNan(std::sqrt(a)); }
};
template <typename T>
struct Rcp {
  static T Do(T a) { return OneNan(T{1} / a); }
};
// By the sign bit, of a NaN too.
template <typename T>
struct Neg {
  static T Do(T a) { return FromBits<T>(ToBits<T>(a) ^ LaneBits<T>{1} << (8 * sizeof(T) - 1)); }
};
template <typename T>
struct Abs {
  static T Do(T a) { return FromBits<T>(ToBits<T>(a) & ~(LaneBits<T>{1} << (8 * sizeof(T) - 1))); }
};
// The one that is a number; -0 is less than 0.
template <typename T>
struct Min {
  static T Do(T a, T b) {
    if (a != a || b != b) return OneNan(a != a ? b : a);
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
template <typename T>
struct Max {
  static T Do(T a, T b) {
    if (a != a || b != b) return OneNan(a != a ? b : a);
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};
enum class Order { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kNumber, kNan };

// With a NaN: kUnordered.
template <typename T, Order kOrder, bool kUnordered>
struct Comparison {
  static bool Do(T a, T b) {
    const bool nan = a != a || b != b;
    switch (kOrder) {
      case Order::kNumber:
        return !nan;
      case Order::kNan:
        return nan;
      case Order::kEqual:
        return nan ? kUnordered : a == b;
      case Order::kNotEqual:
        return nan ? kUnordered : a != b;
      case Order::kLess:
        return nan ? kUnordered : a < b;
      case Order::kLessEqual:
        return nan ? kUnordered : a <= b;
      case Order::kGreater:
        return nan ? kUnordered : a > b;
      case Order::kGreaterEqual:
        return nan ? kUnordered : a >= b;
    }
    return false;
  }
};

template <typename T, Order kOrder>
void AddComparison(const std::string& name, const std::string& type, OperationTable* table) {
  const auto kPlain = OperationKind::kPlain;
  (*table)["setp." + name + "." + type] = {kPlain, CompareShape<T>(),
                                           &Compare<T, Comparison<T, kOrder, false>>};
  (*table)["setp." + name + "u." + type] = {kPlain, CompareShape<T>(),
                                            &Compare<T, Comparison<T, kOrder, true>>};
}

template <typename T>
void AddOfType(const std::string& type, OperationTable* table) {
  OperationTable& t = *table;
  const auto kPlain = OperationKind::kPlain;
  const bool is_double = sizeof(T) == 8;
  const char* const one = UnaryShape<T, T>();
  const char* const two = is_double ? "d=dd" : "w=ww";
  const char* const three = is_double ? "d=ddd" : "w=www";
  for (const char* rounding : {".rn.", "."}) {
    t["add" + (rounding + type)] = {kPlain, two, &Binary<T, T, T, Add<T>>};
    t["sub" + (rounding + type)] = {kPlain, two, &Binary<T, T, T, Sub<T>>};
    t["mul" + (rounding + type)] = {kPlain, two, &Binary<T, T, T, Mul<T>>};
  }
  t["div.rn." + type] = {kPlain, two, &Binary<T, T, T, Div<T>>};
  t["fma.rn." + type] = {kPlain, three, &Ternary<T, T, T, Fma<T>>};
  t["sqrt.rn." + type] = {kPlain, one, &Unary<T, T, Sqrt<T>>};
  t["rcp.rn." + type] = {kPlain, one, &Unary<T, T, Rcp<T>>};
  t["neg." + type] = {kPlain, one, &Unary<T, T, Neg<T>>};
  t["abs." + type] = {kPlain, one, &Unary<T, T, Abs<T>>};
  t["min." + type] = {kPlain, two, &Binary<T, T, T, Min<T>>};
  t["max." + type] = {kPlain, two, &Binary<T, T, T, Max<T>>};
  AddComparison<T, Order::kEqual>("eq", type, table);
  AddComparison<T, Order::kNotEqual>("ne", type, table);
  AddComparison<T, Order::kLess>("lt", type, table);
  AddComparison<T, Order::kLessEqual>("le", type, table);
  AddComparison<T, Order::kGreater>("gt", type, table);
  AddComparison<T, Order::kGreaterEqual>("ge", type, table);
  t["setp.num." + type] = {kPlain, CompareShape<T>(),
                           &Compare<T, Comparison<T, Order::kNumber, false>>};
  t["setp.nan." + type] = {kPlain, CompareShape<T>(),
                           &Compare<T, Comparison<T, Order::kNan, false>>};
}

}  // namespace

void AddFloatOperations(OperationTable* table) {
  AddOfType<float>("f32", table);
  AddOfType<double>("f64", table);
}

}  // namespace device
}  // namespace hotbed
