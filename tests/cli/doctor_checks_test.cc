// Checks of doctor that need no cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/doctor/machine_checks.h"
#include "cli/doctor/process_checks.h"
#include "cli/doctor/serving_check.h"
#include "common/clock.h"
#include "common/rare_counter.h"

namespace hotbed {
namespace doctor_checks_test {

using testing::HasSubstr;

Report ReportOf(const std::string& name, double clock_s, double open, double limit) {
  Report report;
  report.process.name = name;
  report.asked_s = 1'000'000;
  report.metrics = nlohmann::json::array();
  for (const auto& [metric, value] :
       {std::pair("process_clock_seconds", clock_s), std::pair("process_open_fds", open),
        std::pair("process_max_fds", limit)}) {
    report.metrics->push_back(
        {{"name", metric}, {"labels", nlohmann::json::object()}, {"value", value}});
  }
  return report;
}

TEST(DoctorChecksTest, ClocksAreComparedWithThatOfThisMachine) {
  std::vector<Report> reports = {ReportOf("s0", 1'000'000.9, 1, 10),
                                 ReportOf("s1", 999'999.2, 1, 10)};
  EXPECT_EQ(CheckClocks(reports).verdict, Verdict::kOk);
  reports.push_back(ReportOf("s2", 1'000'030, 1, 10));
  reports.push_back(ReportOf("s3", 999'990, 1, 10));
  const Check check = CheckClocks(reports);
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_THAT(check.found,
              testing::ContainsRegex("s2 is 30[.0]* s ahead; s3 is 10[.0]* s behind;"));
  Report silent;
  silent.metrics = absl::UnavailableError("nobody answers");
  EXPECT_EQ(CheckClocks({silent}).verdict, Verdict::kOk) << "the check of /readyz says that";
}

TEST(DoctorChecksTest, KernelsAreTold) {
  std::vector<Report> reports = {ReportOf("s0", 0, 1, 10), ReportOf("s1", 0, 1, 10)};
  EXPECT_EQ(CheckKernels(reports).found, "no server says which it runs");
  for (Report& report : reports) {
    const bool first = report.process.name == "s0";
    report.metrics->push_back(
        {{"name", "hotbed_server_kernels_info"},
         {"labels",
          {{"fetch", first ? "near" : "far"}, {"instructions", first ? "avx512" : "avx2"}}},
         {"value", 1}});
  }
  reports.push_back(ReportOf("r0", 0, 1, 10));
  reports.back().metrics->push_back({{"name", "hotbed_serving_kernels_info"},
                                     {"labels", {{"instructions", "avx512-vnni"}}},
                                     {"value", 1}});
  EXPECT_EQ(CheckKernels(reports).found,
            "s0: avx512, rows are fetched near; s1: avx2, rows are fetched far; "
            "r0: avx512-vnni for served rows");
}

TEST(DoctorChecksTest, TheWayInWhichLogsAreWrittenIsTold) {
  std::vector<Report> reports = {ReportOf("s0", 0, 1, 10), ReportOf("s1", 0, 1, 10)};
  EXPECT_EQ(CheckLogs(reports).found, "no segment was begun yet");
  const auto add = [](Report* report, const std::string& suffix, const char* file, double value) {
    report->metrics->push_back({{"name", "hotbed_server_log_segments" + suffix},
                                {"labels", {{"file", file}}},
                                {"value", value}});
  };
  const double now_s = static_cast<double>(Clock::Real()->WallUs()) * 1e-6;
  add(&reports[0], "_total", "reused", 12);
  add(&reports[0], "_total", "none", 2);
  add(&reports[0], kLastTimeSuffix, "none", now_s);
  add(&reports[0], "_total", "evicted", 1);
  add(&reports[0], kLastTimeSuffix, "evicted", now_s - 2 * kRecentSeconds);
  add(&reports[1], "_total", "reused", 0);
  add(&reports[1], "_total", "none", 1);
  Check check = CheckLogs(reports);
  EXPECT_EQ(check.verdict, Verdict::kOk) << "what was long ago, and a log that is short";
  EXPECT_EQ(check.found,
            "s0: 12 of 15 segments over old ones, 2 new (no old one), "
            "1 new (the old one's pages were evicted); "
            "s1: 0 of 1 segments over old ones, 1 new (no old one)");
  for (const char* file : {"evicted", "refused"}) {
    std::vector<Report> warns = reports;
    add(&warns[1], "_total", file, 3);
    add(&warns[1], kLastTimeSuffix, file, now_s - 5);
    check = CheckLogs(warns);
    EXPECT_EQ(check.verdict, Verdict::kWarning) << file;
    EXPECT_THAT(check.found, HasSubstr("3 new (the old one"));
  }
}

TEST(DoctorChecksTest, OpenFilesNearTheLimitAreTold) {
  EXPECT_EQ(CheckOpenFiles({ReportOf("s0", 0, 799, 1000)}).verdict, Verdict::kOk);
  const Check check = CheckOpenFiles({ReportOf("s0", 0, 1, 1000), ReportOf("s1", 0, 900, 1000)});
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_THAT(check.found, HasSubstr("s1 has 900 of 1000;"));
}

TEST(DoctorChecksTest, CopiesThatDoNotAnswerOrAreOldAreTold) {
  v1::ServingMap map;
  EXPECT_EQ(CheckServing(map).found, "no table is served");
  v1::ServedTable& table = *map.add_tables();
  table.set_table(7);
  table.set_replicas(2);
  for (const char* name : {"r0", "r1"}) {
    table.add_servers(name);
    v1::ServingServerInfo& server = *map.add_servers();
    server.set_name(name);
    server.set_admin_address(std::string(name) + ":1");
    server.set_alive(true);
    v1::ReplicaReport& replica = *server.add_replicas();
    replica.set_table(7);
    replica.set_ready(true);
  }
  map.add_specs()->set_name("user");
  EXPECT_EQ(CheckServing(map).verdict, Verdict::kOk);
  EXPECT_EQ(LiveServingProcesses(map).size(), 2u);

  map.mutable_servers(0)->mutable_replicas(0)->set_age_ms(59'000);
  map.mutable_servers(0)->set_silent_ms(3'000);
  Check check = CheckServing(map);
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_THAT(
      check.found,
      HasSubstr("too old: user on r0 is 62000 ms old (allowed: 60000); see 'hotbed serve status'"));
  table.set_staleness_ms_max(100'000);
  EXPECT_EQ(CheckServing(map).verdict, Verdict::kOk) << "the table's limit counts";
  map.mutable_servers(0)->mutable_replicas(0)->set_trouble("the device has failed");
  check = CheckServing(map);
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_THAT(check.found, HasSubstr("in trouble: r0: the device has failed; see"));
  map.mutable_servers(0)->mutable_replicas(0)->clear_trouble();

  map.mutable_servers(1)->set_alive(false);
  check = CheckServing(map);
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_THAT(check.found, HasSubstr("fewer copies than wanted: user (1 of 2); silent: r1"));
  EXPECT_EQ(LiveServingProcesses(map).size(), 1u);
  table.set_replicas_min(1);
  table.set_replicas_max(3);
  EXPECT_THAT(CheckServing(map).found, testing::StartsWith("silent: r1"))
      << "the further copies of a hot table come and go";
  table.clear_replicas_min();
  table.clear_replicas_max();

  map.mutable_servers(0)->mutable_replicas(0)->set_ready(false);
  map.mutable_servers(0)->mutable_replicas(0)->set_trouble("the memory is used up");
  check = CheckServing(map);
  EXPECT_EQ(check.verdict, Verdict::kFailed);
  EXPECT_THAT(check.found, HasSubstr("no copy answers for user (0 of 2: the memory is used up)"));
}

TEST(DoctorChecksTest, APartThatNobodyAnswersIsTold) {
  v1::ServingMap map;
  v1::ServedTable& table = *map.add_tables();
  table.set_table(7);
  table.set_replicas(1);
  table.set_parts(2);
  map.add_specs()->set_name("user");
  for (const uint32_t part : {0, 1}) {
    table.add_servers(absl::StrCat("r", part));
    table.add_server_parts(part);
    v1::ServingServerInfo& server = *map.add_servers();
    server.set_name(absl::StrCat("r", part));
    server.set_alive(true);
    v1::ReplicaReport& replica = *server.add_replicas();
    replica.set_table(7);
    replica.set_part(part);
    replica.set_parts(2);
    replica.set_ready(true);
  }
  EXPECT_EQ(CheckServing(map).verdict, Verdict::kOk) << CheckServing(map).found;
  v1::AwaitedVersion& awaited = *map.add_awaited();
  awaited.set_number(4);
  awaited.set_server("r1");
  awaited.set_trouble("its files are gone");
  EXPECT_EQ(CheckServing(map).verdict, Verdict::kWarning);
  EXPECT_THAT(CheckServing(map).found,
              testing::StartsWith("versions that parts which are to follow do not hold: number 4 "
                                  "on r1 (its files are gone); see"));
  map.clear_awaited();
  map.mutable_servers(1)->mutable_replicas(0)->set_ready(false);
  EXPECT_EQ(CheckServing(map).verdict, Verdict::kFailed);
  EXPECT_THAT(CheckServing(map).found, HasSubstr("no copy answers for user part 2 of 2 (0 of 1)"));
}

TEST(DoctorChecksTest, TheDiskIsTimed) {
  EXPECT_THAT(CheckDisk(testing::TempDir()).found,
              testing::AnyOf(HasSubstr("a sync takes up to"), HasSubstr("need more")));
  EXPECT_EQ(CheckDisk("/nowhere/at/all").verdict, Verdict::kFailed);
}

}  // namespace doctor_checks_test
}  // namespace hotbed
