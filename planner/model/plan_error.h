// The reason why a plan cannot be made, in a form that a program can act on, and the value-or-error
// type that the planner's functions return. Plain values, safe from any thread.
#ifndef HOTBED_PLANNER_MODEL_PLAN_ERROR_H_
#define HOTBED_PLANNER_MODEL_PLAN_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace hotbed {

enum class PlanErrorKind : uint8_t {
  kInsufficientStorage,  // nothing fits
  kStrictConstraints,    // the constraints leave a table no choice, or a strict rule is broken
  kPartition,            // the choices fit in sum, but no placement of them was found
  kInput,                // the input itself is wrong
};

struct PlanError {
  PlanErrorKind kind = PlanErrorKind::kInput;
  std::string message;  // names the thing, the value, the limit and what would help
  std::optional<std::string> table;
  std::optional<uint64_t> limit;
  std::optional<uint64_t> missing_bytes;
};

// Either a T or a PlanError. Call value() only if ok(), and error() only if not.
template <typename T>
class PlanResult {
 public:
  PlanResult(T value) : state_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  PlanResult(PlanError error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  T& value() { return std::get<T>(state_); }
  const T& value() const { return std::get<T>(state_); }
  const PlanError& error() const { return std::get<PlanError>(state_); }

 private:
  std::variant<T, PlanError> state_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLAN_ERROR_H_
