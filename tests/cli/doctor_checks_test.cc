// Checks of doctor that need no cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/doctor/machine_checks.h"
#include "cli/doctor/process_checks.h"

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

TEST(DoctorChecksTest, OpenFilesNearTheLimitAreTold) {
  EXPECT_EQ(CheckOpenFiles({ReportOf("s0", 0, 799, 1000)}).verdict, Verdict::kOk);
  const Check check = CheckOpenFiles({ReportOf("s0", 0, 1, 1000), ReportOf("s1", 0, 900, 1000)});
  EXPECT_EQ(check.verdict, Verdict::kWarning);
  EXPECT_THAT(check.found, HasSubstr("s1 has 900 of 1000;"));
}

TEST(DoctorChecksTest, TheDiskIsTimed) {
  EXPECT_THAT(CheckDisk(testing::TempDir()).found,
              testing::AnyOf(HasSubstr("a sync takes up to"), HasSubstr("need more")));
  EXPECT_EQ(CheckDisk("/nowhere/at/all").verdict, Verdict::kFailed);
}

}  // namespace doctor_checks_test
}  // namespace hotbed
