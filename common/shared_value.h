// A value that does not change, and that all copies share: for what very many objects have alike,
// or hand on from one version to the next. Thread-compatible, as std::shared_ptr is.
#ifndef HOTBED_COMMON_SHARED_VALUE_H_
#define HOTBED_COMMON_SHARED_VALUE_H_

#include <memory>
#include <utility>

namespace hotbed {

template <typename T>
class SharedValue {
 public:
  SharedValue() : value_(Default()) {}
  SharedValue(T value)  // NOLINT(google-explicit-constructor): it is one
      : value_(std::make_shared<const T>(std::move(value))) {}

  operator const T&() const { return *value_; }  // NOLINT(google-explicit-constructor)
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  bool unique() const { return value_.use_count() == 1; }  // no copy has it

 private:
  static const std::shared_ptr<const T>& Default() {
    static const auto* const value = new std::shared_ptr<const T>(std::make_shared<const T>());
    return *value;
  }

  std::shared_ptr<const T> value_;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_SHARED_VALUE_H_
