#include "serving/table_versions.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"

namespace hotbed {
namespace {

constexpr int64_t kTakeUpAgainNs = 10 * kSecondNs;
constexpr size_t kVersionTroubleBytesMax = 400;

}  // namespace

const TableVersions::Wanted* TableVersions::Find(uint64_t number) const {
  for (const Wanted& wanted : wanted_) {
    if (wanted.version.number() == number) return &wanted;
  }
  return nullptr;
}

TableVersions::Wanted* TableVersions::Find(uint64_t number) {
  for (Wanted& wanted : wanted_) {
    if (wanted.version.number() == number) return &wanted;
  }
  return nullptr;
}

void TableVersions::Order(const std::vector<v1::ServedVersion>& versions,
                          std::vector<uint64_t> current) {
  absl::MutexLock lock(&mu_);
  std::vector<Wanted> next;
  for (const v1::ServedVersion& version : versions) {
    const Wanted* const known = Find(version.number());
    next.push_back(known != nullptr ? *known : Wanted{.version = version});
  }
  std::sort(next.begin(), next.end(), [&current](const Wanted& a, const Wanted& b) {
    const auto rank = [&current](const Wanted& one) {
      const uint64_t number = one.version.number();
      return std::tuple(std::find(current.begin(), current.end(), number) != current.end(), number);
    };
    return rank(a) > rank(b);
  });
  wanted_ = std::move(next);
  current_ = std::move(current);
}

bool TableVersions::Wants(uint64_t number) const {
  absl::MutexLock lock(&mu_);
  return Find(number) != nullptr;
}

std::optional<v1::ServedVersion> TableVersions::Next(int64_t now_ns, VersionedRows* rows) {
  std::vector<uint64_t> numbers, damaged, current;
  {
    absl::MutexLock lock(&mu_);
    for (const Wanted& wanted : wanted_) numbers.push_back(wanted.version.number());
    current = current_;
  }
  std::erase_if(numbers, [&](uint64_t number) {
    const std::shared_ptr<const RowsBelow> below = rows->FindBelow(number);
    if (below == nullptr || !below->damaged()) return false;
    damaged.push_back(number);
    return true;
  });
  // Without the lock: this may wait for a pass over all rows.
  rows->Keep(
      [&numbers](uint64_t number) {
        return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
      },
      current);
  absl::MutexLock lock(&mu_);
  for (Wanted& wanted : wanted_) {
    const uint64_t number = wanted.version.number();
    const bool held_before = std::exchange(wanted.held, rows->Version(number).has_value());
    if (wanted.held) continue;
    if (held_before) {
      wanted.trouble =
          std::find(damaged.begin(), damaged.end(), number) != damaged.end()
              ? "its rows on disk are damaged: it is taken up again"
              : "it was given up, because the memory of rows (--host-bytes) is used up";
      wanted.not_before_ns = now_ns + kTakeUpAgainNs;
    }
    if (now_ns < wanted.not_before_ns) continue;
    wanted.rows_read = 0;
    return wanted.version;
  }
  return std::nullopt;
}

void TableVersions::NoteRead(uint64_t number, uint64_t rows, uint64_t rows_in_all) {
  absl::MutexLock lock(&mu_);
  Wanted* const wanted = Find(number);
  if (wanted == nullptr) return;
  wanted->rows_read += rows;
  wanted->rows_in_all = rows_in_all;
}

void TableVersions::NoteEnd(uint64_t number, const absl::Status& status, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  Wanted* const wanted = Find(number);
  if (wanted == nullptr) return;
  if (!status.ok()) wanted->not_before_ns = now_ns + kTakeUpAgainNs;
  if (absl::IsCancelled(status))
    return;  // the copy began again, which is no failure of the version
  if (status.ok()) {
    wanted->first_failed_ns = wanted->last_failed_ns = 0;
  } else {
    if (wanted->first_failed_ns == 0) wanted->first_failed_ns = now_ns;
    wanted->last_failed_ns = now_ns;
  }
  std::string trouble(status.message());
  if (trouble.size() > kVersionTroubleBytesMax) trouble.resize(kVersionTroubleBytesMax);
  if (!status.ok() && trouble != wanted->trouble) {
    HOTBED_LOG(Warning) << "version " << wanted->version.name() << " is not taken up: " << trouble;
  }
  wanted->trouble = std::move(trouble);
}

void TableVersions::Report(const VersionedRows& rows, v1::ReplicaReport* report) const {
  absl::MutexLock lock(&mu_);
  for (const Wanted& wanted : wanted_) {
    v1::VersionReport& said = *report->add_versions();
    said.set_number(wanted.version.number());
    said.set_held(rows.Version(wanted.version.number()).has_value());
    if (const auto overlay = rows.Find(wanted.version.number())) {
      said.set_rows(overlay->rows());
      said.set_bytes(overlay->bytes());
    } else if (const auto below = rows.FindBelow(wanted.version.number())) {
      said.set_rows(below->rows());
    }
    said.set_rows_read(wanted.rows_read);
    said.set_rows_in_all(wanted.rows_in_all);
    if (said.held()) continue;
    said.set_trouble(wanted.trouble);
    said.set_failed_for_ms(
        static_cast<uint64_t>((wanted.last_failed_ns - wanted.first_failed_ns) / kMillisecondNs));
  }
}

std::string TableVersions::WhyNot(uint64_t number) const {
  absl::MutexLock lock(&mu_);
  const Wanted* const wanted = Find(number);
  if (wanted == nullptr) {
    return absl::StrCat("version number ", number, " is not held here, nor ordered");
  }
  return absl::StrCat("version ", wanted->version.name(), " is not held here: ",
                      wanted->trouble.empty() ? absl::StrCat("it is being taken up, ",
                                                             wanted->rows_read, " rows so far")
                                              : wanted->trouble);
}

}  // namespace hotbed
