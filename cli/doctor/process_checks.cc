#include "cli/doctor/process_checks.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/tables/table_text.h"
#include "common/clock.h"
#include "common/dial.h"
#include "common/host_port.h"
#include "common/rare_counter.h"
#include "config/units.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

// Beyond its budget a process may have the code and heap of its libraries.
constexpr double kMemoryFactorMax = 1.15;
constexpr double kMemoryBesideBytes = 128 << 20;
constexpr double kCoordinatorMemoryBytesMax = 1 << 30;
// Above this part of a budget, requests soon wait for room in it.
constexpr double kBudgetPart = 0.5;
// Clocks further apart than this make events and log lines hard to compare.
constexpr double kClockSecondsMax = 1;
// A process with more of the files that it may have open is near its limit.
constexpr double kOpenFilesPart = 0.8;

double UnixSeconds() { return static_cast<double>(Clock::Real()->WallUs()) * 1e-6; }

// A page of its admin port. FailedPrecondition: it is out of reach, as its address shows.
absl::StatusOr<HttpReply> AdminPage(const ProcessPorts& process, const std::string& path,
                                    absl::Duration timeout) {
  const absl::StatusOr<HostPort> admin = SplitHostPort(process.admin_address, 1);
  const absl::StatusOr<HostPort> data = SplitHostPort(process.address, 1);
  // Another process of this machine might answer in its place.
  if (admin.ok() && data.ok() && IsLoopbackHost(admin->host) && !IsLoopbackHost(data->host)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its admin port at ", process.admin_address,
        " is for its own machine; start it with --admin-listen=0.0.0.0:", admin->port));
  }
  return HttpGet(process.admin_address, path, timeout);
}

// The version of a process, from its hotbed_build_info.
std::string VersionOf(const Report& report) {
  if (!report.metrics.ok()) return std::string(report.metrics.status().message());
  std::string version = "unknown";
  report.ForEach("hotbed_build_info", [&](const nlohmann::json& labels, double) {
    version = labels.value("version", "");
  });
  return version;
}

// A counter with a label, and what its value says of a peer.
struct Counted {
  const char* metric;
  const char* label;
  const char* words;
};
constexpr Counted kPeersStopped[] = {
    {"hotbed_port_ended", "reason", "connections ended or refused for "},
    {"hotbed_server_numbers_not_given", "number",
     "requests with a number that nobody has given out: "},
};

// Why a segment of a log is a new file, by the label of its metric.
std::string WhyNewFile(const std::string& file) {
  if (file == "none") return "no old one";
  if (file == "too_long") return "the old ones are too long";
  if (file == "evicted") return "the old one's pages were evicted";
  return file == "refused" ? "the old one could not be written over" : file;
}

}  // namespace

std::vector<ProcessPorts> LiveProcesses(const v1::ClusterMap& map, const std::string& coordinator) {
  std::vector<ProcessPorts> processes;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    processes.push_back({server.name(), server.address(), server.admin_address()});
  }
  std::string admin = map.coordinator_admin_address();
  const absl::StatusOr<HostPort> listens = SplitHostPort(admin, 1);
  const absl::StatusOr<HostPort> asked = SplitHostPort(coordinator, 1);
  if (!listens.ok()) return processes;  // it is older and tells nothing
  if (asked.ok() && IsWildcardHost(listens->host)) admin = JoinHostPort(asked->host, listens->port);
  processes.push_back({"coordinator", coordinator, admin, false});
  return processes;
}

std::vector<Report> AskAll(const std::vector<ProcessPorts>& processes, absl::Duration timeout) {
  std::vector<Report> reports;
  for (const ProcessPorts& process : processes) {
    Report report{process, AdminPage(process, "/readyz", timeout), nlohmann::json::array()};
    const absl::StatusOr<HttpReply> page = AdminPage(process, "/api/metrics", timeout);
    if (page.ok() && page->code != 200) {
      report.metrics =
          absl::PermissionDeniedError(absl::StrCat("/api/metrics answers ", page->code, ": ",
                                                   absl::StripTrailingAsciiWhitespace(page->body)));
    } else if (page.ok()) {
      report.asked_s = UnixSeconds();
      report.metrics = nlohmann::json::parse(page->body, nullptr, false);
      if (!report.metrics->is_array()) {
        report.metrics = absl::DataLossError("unreadable /api/metrics");
      }
    } else {
      report.metrics = page.status();
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

Check CheckDataPorts(const v1::ClusterMap& map, absl::Duration timeout) {
  std::string closed;
  int connected = 0;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    const absl::StatusOr<int> socket = Dial(server.address(), timeout);
    if (!socket.ok()) {
      absl::StrAppend(&closed, " ", server.name(), " at ", socket.status().message(), ";");
      continue;
    }
    close(*socket);
    ++connected;
  }
  if (closed.empty()) {
    return {"data ports", Verdict::kOk, absl::StrCat(connected, " answer this machine")};
  }
  return {"data ports", Verdict::kFailed,
          absl::StrCat("not reached from this machine:", closed,
                       " is a server to be reached at another address? Start it with --advertise")};
}

Check CheckHashes(const std::vector<Report>& reports) {
  std::string wrong;
  for (const Report& report : reports) {
    const double value = report.Sum("hotbed_server_replicas_diverged_total");
    if (value > 0) absl::StrAppend(&wrong, " ", report.process.name, ": ", value, ";");
  }
  if (wrong.empty())
    return {"equal replicas", Verdict::kOk, "no replica differed from its primary"};
  return {"equal replicas", Verdict::kFailed,
          absl::StrCat("replicas that differed from their primary, since the server began:", wrong,
                       " see its log, and keep both servers' data directories")};
}

Check CheckDamage(const std::vector<Report>& reports) {
  std::string refused;
  for (const Report& report : reports) {
    const double value = report.Sum("hotbed_server_shards_refused");
    if (value > 0) absl::StrAppend(&refused, " ", report.process.name, ": ", value, ";");
  }
  if (refused.empty()) return {"damage", Verdict::kOk, "no shard is refused"};
  return {"damage", Verdict::kFailed,
          absl::StrCat("shards that are refused because their data is damaged or missing:", refused,
                       " /statusz of the server names the files")};
}

Check CheckMemory(const std::vector<Report>& reports) {
  std::string large;
  for (const Report& report : reports) {
    const double resident = report.Sum("process_resident_memory_bytes");
    const double budget = report.Sum("hotbed_server_host_limit_bytes");
    const double most = report.process.is_server ? kMemoryFactorMax * budget + kMemoryBesideBytes
                                                 : kCoordinatorMemoryBytesMax;
    if ((report.process.is_server && budget == 0) || resident <= most) continue;
    absl::StrAppend(&large, " ", report.process.name, " has ",
                    FormatBytes(static_cast<uint64_t>(resident)), ", expected at most ",
                    FormatBytes(static_cast<uint64_t>(most)), ";");
  }
  if (large.empty()) return {"memory", Verdict::kOk, "every process keeps its budget"};
  return {"memory", Verdict::kWarning, large.substr(1, large.size() - 2)};
}

Check CheckInFlight(const std::vector<Report>& reports) {
  std::string full;
  for (const Report& report : reports) {
    report.ForEach("hotbed_server_in_flight_bytes", [&](const nlohmann::json& labels, double used) {
      double limit = 0;
      report.ForEach("hotbed_server_in_flight_limit_bytes",
                     [&](const nlohmann::json& of, double value) {
                       if (of == labels) limit = value;
                     });
      if (limit == 0 || used < kBudgetPart * limit) return;
      absl::StrAppend(&full, " ", report.process.name, ": ", labels.value("budget", ""), " ",
                      FormatBytes(static_cast<uint64_t>(used)), " of ",
                      FormatBytes(static_cast<uint64_t>(limit)), ";");
    });
  }
  if (full.empty()) return {"in flight", Verdict::kOk, "every budget of messages has room"};
  return {"in flight", Verdict::kWarning,
          absl::StrCat("much is being sent, or clients do not read their answers:",
                       full.substr(0, full.size() - 1))};
}

Check CheckPeers(const std::vector<Report>& reports) {
  const double now_s = static_cast<double>(Clock::Real()->WallUs()) * 1e-6;
  std::string bad;
  for (const Report& report : reports) {
    for (const Counted& counted : kPeersStopped) {
      report.ForEach(absl::StrCat(counted.metric, kLastTimeSuffix),
                     [&](const nlohmann::json& labels, double last_s) {
                       const std::string why = labels.value(counted.label, "");
                       if (now_s - last_s > kRecentSeconds) return;
                       if (why == "access_changed") return;  // by a person
                       absl::StrAppend(&bad, " ", report.process.name, ": ", counted.words, why,
                                       ", the last ", ShortSeconds(std::max(0.0, now_s - last_s)),
                                       " ago;");
                     });
    }
  }
  if (bad.empty()) return {"peers", Verdict::kOk, "no peer had to be stopped lately"};
  return {"peers", Verdict::kWarning, bad.substr(1, bad.size() - 2)};
}

Check CheckReady(const std::vector<Report>& reports) {
  std::string unready;
  std::string unasked;
  int ready = 0;
  for (const Report& report : reports) {
    const absl::StatusOr<HttpReply>& reply = report.ready;
    if (reply.ok() && reply->code == 200) {
      ready += report.process.is_server ? 1 : 0;
      continue;
    }
    const std::string said = reply.ok() ? reply->body : std::string(reply.status().message());
    // The coordinator has answered at its other port; its admin port may be for others.
    const bool warns =
        absl::IsFailedPrecondition(reply.status()) || (!reply.ok() && !report.process.is_server);
    absl::StrAppend(warns ? &unasked : &unready, " ", report.process.name, ": ",
                    absl::StrReplaceAll(absl::StripTrailingAsciiWhitespace(said), {{"\n", ", "}}),
                    ";");
  }
  const std::string others = unready + unasked;
  if (others.empty()) return {"ready", Verdict::kOk, absl::StrCat(ready, " servers are ready")};
  return {"ready", unready.empty() ? Verdict::kWarning : Verdict::kFailed,
          others.substr(1, others.size() - 2)};
}

Check CheckVersions(const std::vector<Report>& reports) {
  std::string others;
  for (const Report& report : reports) {
    const std::string version = VersionOf(report);
    if (version != HOTBED_VERSION) {
      absl::StrAppend(&others, " ", report.process.name, ": ", version, ";");
    }
  }
  if (others.empty())
    return {"versions", Verdict::kOk, absl::StrCat("all processes run ", HOTBED_VERSION)};
  return {"versions", Verdict::kWarning, absl::StrCat("this is ", HOTBED_VERSION, ";", others)};
}

Check CheckKernels(const std::vector<Report>& reports) {
  std::string found;
  for (const Report& report : reports) {
    report.ForEach("hotbed_server_kernels_info", [&](const nlohmann::json& labels, double) {
      absl::StrAppend(&found, found.empty() ? "" : "; ", report.process.name, ": ",
                      labels.value("instructions", ""), ", rows are fetched ",
                      labels.value("fetch", ""));
    });
    report.ForEach("hotbed_serving_kernels_info", [&](const nlohmann::json& labels, double) {
      absl::StrAppend(&found, found.empty() ? "" : "; ", report.process.name, ": ",
                      labels.value("instructions", ""), " for served rows");
    });
  }
  return {"kernels", Verdict::kOk, found.empty() ? "no server says which it runs" : found};
}

Check CheckLogs(const std::vector<Report>& reports) {
  const double now_s = UnixSeconds();
  std::string found;
  bool lately = false;
  for (const Report& report : reports) {
    double all = 0;
    double reused = 0;
    std::string others;
    report.ForEach("hotbed_server_log_segments_total",
                   [&](const nlohmann::json& labels, double segments) {
                     const std::string file = labels.value("file", "");
                     all += segments;
                     if (file == "reused") reused = segments;
                     if (segments == 0 || file == "reused") return;
                     absl::StrAppend(&others, ", ", segments, " new (", WhyNewFile(file), ")");
                   });
    report.ForEach(absl::StrCat("hotbed_server_log_segments", kLastTimeSuffix),
                   [&](const nlohmann::json& labels, double last_s) {
                     const std::string file = labels.value("file", "");
                     lately |= (file == "evicted" || file == "refused") &&
                               now_s - last_s <= kRecentSeconds;
                   });
    if (all == 0) continue;
    absl::StrAppend(&found, found.empty() ? "" : "; ", report.process.name, ": ", reused, " of ",
                    all, " segments over old ones", others);
  }
  if (found.empty()) return {"logs", Verdict::kOk, "no segment was begun yet"};
  if (!lately) return {"logs", Verdict::kOk, found};
  return {"logs", Verdict::kWarning,
          absl::StrCat("appends cost more in new files: ", found,
                       "; pages are evicted where the machine is short of memory, and the server's "
                       "log says why a file was refused")};
}

Check CheckClocks(const std::vector<Report>& reports) {
  std::string apart;
  for (const Report& report : reports) {
    report.ForEach("process_clock_seconds", [&](const nlohmann::json&, double clock_s) {
      const double ahead_s = clock_s - report.asked_s;
      if (std::abs(ahead_s) <= kClockSecondsMax) return;
      absl::StrAppend(&apart, " ", report.process.name, " is ", ShortSeconds(std::abs(ahead_s)),
                      ahead_s > 0 ? " ahead;" : " behind;");
    });
  }
  if (apart.empty()) return {"clocks", Verdict::kOk, "those of all processes agree with this one"};
  return {"clocks", Verdict::kWarning,
          absl::StrCat("compared with this machine's:", apart,
                       " certificates and the times of events depend on them: run an NTP client")};
}

Check CheckOpenFiles(const std::vector<Report>& reports) {
  std::string full;
  for (const Report& report : reports) {
    const double open = report.Sum("process_open_fds");
    const double limit = report.Sum("process_max_fds");
    if (limit == 0 || open < kOpenFilesPart * limit) continue;
    absl::StrAppend(&full, " ", report.process.name, " has ", open, " of ", limit, ";");
  }
  if (full.empty()) return {"open files", Verdict::kOk, "every process may open more"};
  return {"open files", Verdict::kWarning,
          absl::StrCat("near the limit:", full, " raise it (ulimit -n, LimitNOFILE=)")};
}

}  // namespace hotbed
