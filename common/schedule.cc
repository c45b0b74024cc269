#include "common/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr double kPi = 3.14159265358979323846;

absl::Status Bad(absl::string_view field, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("schedule.", field, " is ", value, ", allowed: ", allowed));
}

double AfterWarmup(const Schedule& s, double base, double t) {
  const double past = t - static_cast<double>(s.warmup_steps);
  switch (s.kind) {
    case ScheduleKind::kConstant:
      return base;
    case ScheduleKind::kInverseSqrt:
      return base * std::sqrt(std::max<double>(static_cast<double>(s.warmup_steps), 1) / t);
    case ScheduleKind::kCosine: {
      const double low = s.min_factor * base;
      const double part = past / static_cast<double>(s.total_steps - s.warmup_steps);
      return low + (base - low) * (1 + std::cos(kPi * std::min(1.0, part))) / 2;
    }
    case ScheduleKind::kStep:
      return base * std::pow(static_cast<double>(s.gamma),
                             std::floor(past / static_cast<double>(s.step_size)));
  }
  return base;
}

}  // namespace

const std::vector<std::string> kScheduleWords = {"constant", "inverse-sqrt", "cosine", "step"};

float Schedule::RateAt(float base, uint64_t step) const {
  const double t = static_cast<double>(std::max<uint64_t>(step, 1));
  const double warmup = static_cast<double>(warmup_steps);
  if (t < warmup) {
    return static_cast<float>(warmup_from + (static_cast<double>(base) - warmup_from) * t / warmup);
  }
  return static_cast<float>(AfterWarmup(*this, base, t));
}

std::string Schedule::ToText() const {
  std::string text = kScheduleWords[static_cast<size_t>(kind)];
  if (warmup_steps != 0) absl::StrAppend(&text, " warmup-steps=", warmup_steps);
  if (warmup_from != 0) absl::StrAppend(&text, " warmup-from=", warmup_from);
  if (kind == ScheduleKind::kCosine) {
    absl::StrAppend(&text, " total-steps=", total_steps, " min-factor=", min_factor);
  }
  if (kind == ScheduleKind::kStep) {
    absl::StrAppend(&text, " step-size=", step_size, " gamma=", gamma);
  }
  return text;
}

bool operator==(const Schedule& a, const Schedule& b) {
  return a.kind == b.kind && a.warmup_steps == b.warmup_steps && a.warmup_from == b.warmup_from &&
         a.total_steps == b.total_steps && a.min_factor == b.min_factor &&
         a.step_size == b.step_size && a.gamma == b.gamma;
}

absl::Status ValidateSchedule(const Schedule& s) {
  if (static_cast<int>(s.kind) > static_cast<int>(ScheduleKind::kStep)) {
    return Bad("kind", absl::StrCat(static_cast<int>(s.kind)), "0..3");
  }
  if (!(std::isfinite(s.warmup_from) && s.warmup_from >= 0)) {
    return Bad("warmup_from", absl::StrCat(s.warmup_from), "finite and >= 0");
  }
  if (s.kind == ScheduleKind::kCosine && s.total_steps <= s.warmup_steps) {
    return Bad("total_steps", absl::StrCat(s.total_steps),
               absl::StrCat("above warmup_steps = ", s.warmup_steps));
  }
  if (!(s.min_factor >= 0 && s.min_factor <= 1)) {
    return Bad("min_factor", absl::StrCat(s.min_factor), "[0, 1]");
  }
  if (s.kind == ScheduleKind::kStep && s.step_size == 0) {
    return Bad("step_size", "0", "1 or more");
  }
  if (!(s.gamma > 0 && s.gamma <= 1)) return Bad("gamma", absl::StrCat(s.gamma), "(0, 1]");
  return absl::OkStatus();
}

}  // namespace hotbed
