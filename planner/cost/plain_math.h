// Logarithm, exponential and power, computed with + - * / on IEEE doubles (contraction is off in
// planner/cost). The C library's results differ in the last bit from machine to machine, and plans
// must not. Pure functions.
//
// Errors, relative: log and exp below 1e-15 (a tested figure); Power(x, y) below
// 1e-15 * (1 + |y log x|).
#ifndef HOTBED_PLANNER_COST_PLAIN_MATH_H_
#define HOTBED_PLANNER_COST_PLAIN_MATH_H_

namespace hotbed {

// Natural logarithm; x must be finite and > 0.
double PlainLog(double x);

// e^x; 0 below -700, e^700 above 700.
double PlainExp(double x);

// e^x - 1 without cancellation near 0.
double PlainExpMinusOne(double x);

// x^y for x > 0.
double PlainPower(double x, double y);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_PLAIN_MATH_H_
