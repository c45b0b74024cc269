// The console: one page about the cluster for a browser, with its style sheet and its program, as
// built into the binary. It asks for /api/cluster every two seconds and for nothing else.
#ifndef HOTBED_PLANNER_COORDINATOR_CONSOLE_CONSOLE_H_
#define HOTBED_PLANNER_COORDINATOR_CONSOLE_CONSOLE_H_

namespace hotbed {

// Contents of console.html, console.css and console.js.
extern const char kConsoleHtml[];
extern const char kConsoleCss[];
extern const char kConsoleJs[];

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CONSOLE_CONSOLE_H_
