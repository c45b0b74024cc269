// Learning rates as functions of the training step, for trainers that send theirs with each push:
//
//   hotbed::Schedule schedule;
//   schedule.kind = hotbed::ScheduleKind::kInverseSqrt;
//   schedule.warmup_steps = 4000;
//   schedule.warmup_from = 1e-7f;
//   hotbed::PushOptions options;
//   options.has_learning_rate = true;
//   options.learning_rate = schedule.RateAt(5e-4f, step);
//
// A table can have a schedule of its own (TableOptions::schedule), which applies to pushes that
// carry no learning rate. Formulas and fields are in common/schedule.h; ValidateSchedule names the
// field that is not valid.
#ifndef HOTBED_SCHEDULE_H_
#define HOTBED_SCHEDULE_H_

#include "common/schedule.h"

#endif  // HOTBED_SCHEDULE_H_
