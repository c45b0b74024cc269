// The store of the spill tier: opening it, using it, and starting over when a file is damaged.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "server/tiers/spill/row_journal.h"
#include "server/tiers/spill/spill_record.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {
namespace {

std::string RenewingMark(const std::string& dir) { return dir + "/RENEWING"; }
std::string RunFile(const std::string& rows) { return rows + "/RUN"; }

// 0: there is no such file.
absl::StatusOr<uint64_t> ReadRun(const std::string& path) {
  if (!FileSystem::Real()->Exists(path)) return 0;
  HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(path));
  uint64_t run = 0;
  if (!absl::SimpleHexAtoi(text, &run) || run == 0) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: it holds no number"));
  }
  return run;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpillTier>> SpillTier::Open(const std::string& dir,
                                                           const KvOptions& options, Marks* marks,
                                                           uint64_t run) {
  if (options.must_exist && !FileSystem::Real()->Exists(dir)) {
    return absl::DataLossError(
        absl::StrCat(dir,
                     " does not exist, and this server has kept rows "
                     "there: it is missing; check that its disk is mounted"));
  }
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::UnavailableError(absl::StrCat("creating ", dir, ": ", error.message()));
  auto tier = std::unique_ptr<SpillTier>(new SpillTier(dir, options, marks, run));
  absl::MutexLock lock(&tier->mu_);
  if (FileSystem::Real()->Exists(RenewingMark(dir))) {  // a kill interrupted Renew
    HOTBED_RETURN_IF_ERROR(tier->OpenEmpty());
  } else {
    HOTBED_RETURN_IF_ERROR(tier->CheckState());
    HOTBED_RETURN_IF_ERROR(tier->CheckRun());
    HOTBED_RETURN_IF_ERROR(tier->OpenStore(options.must_exist));
  }
  return tier;
}

// Rows that were flushed are in the manifest, so it must contain what it contained then.
absl::Status SpillTier::CheckState() const {
  const std::string rows = RowsOptions().dir;
  if (marks_ == nullptr || marks_->Get(Marks::kSpill).b == 0) {
    // RocksDB would take a folder without CURRENT for a new one and delete what is in it.
    return options_.must_exist ? KvStateOf(rows).status() : absl::OkStatus();
  }
  const Mark mark = marks_->Get(Marks::kSpill);
  const KvState flushed = {mark.a, mark.b, mark.c};
  HOTBED_ASSIGN_OR_RETURN(const KvState now, KvStateOf(rows, flushed.bytes));
  const bool replaced = now.file > flushed.file && marks_->Get(Marks::kSpillChanges).a != 0;
  if (replaced || now == flushed) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      rows, "/MANIFEST-", absl::Dec(now.file, absl::kZeroPad6), " has ", now.bytes,
      " bytes, and the rows were last flushed with ", flushed.bytes, " bytes of MANIFEST-",
      absl::Dec(flushed.file, absl::kZeroPad6), " (", marks_->path(),
      "): it is cut short, or older rows, or those of a copy, are in place of the last"));
}

absl::Status SpillTier::CheckRun() const {
  const Mark runs = marks_ == nullptr ? Mark() : marks_->Get(Marks::kSpillRuns);
  if (runs.a == 0) return absl::OkStatus();
  const std::string file = RunFile(RowsOptions().dir);
  HOTBED_ASSIGN_OR_RETURN(const uint64_t run, ReadRun(file));
  if (run == runs.a || run == runs.b) return absl::OkStatus();
  const std::string has =
      run == 0 ? std::string("is missing") : absl::StrCat("names start ", absl::Hex(run));
  return absl::DataLossError(
      absl::StrCat(file, " ", has, ", and start ", absl::Hex(runs.a), " opened the rows last (",
                   marks_->path(), "): older rows, or those of a copy, are in place of the last"));
}

// A kill may leave the file of the run before.
absl::Status SpillTier::MarkRun() {
  if (marks_ == nullptr || run_ == 0) return absl::OkStatus();
  const std::string file = RunFile(RowsOptions().dir);
  HOTBED_ASSIGN_OR_RETURN(const uint64_t before, ReadRun(file));
  marks_->Set(Marks::kSpillRuns, {run_, before, 0});
  HOTBED_RETURN_IF_ERROR(marks_->Sync());
  return FileSystem::Real()->WriteAtomically(file, absl::StrCat(absl::Hex(run_)));
}

absl::Status SpillTier::CheckFrozen(const std::vector<uint64_t>& numbers) const {
  const Mark mark = marks_ == nullptr ? Mark() : marks_->Get(Marks::kFrozen);
  if (mark.a == 0 || (!numbers.empty() && numbers.back() > mark.a)) return absl::OkStatus();
  const std::string last = FrozenDir(mark.a);
  if (numbers.empty() || numbers.back() < mark.a) {
    return absl::DataLossError(
        absl::StrCat(last, ", the last checkpoint, is missing (", marks_->path(), ")"));
  }
  HOTBED_ASSIGN_OR_RETURN(const KvState state, KvStateOf(last));
  if (state.bytes == mark.b && state.crc == mark.c) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      last, "/MANIFEST-", absl::Dec(state.file, absl::kZeroPad6), " has ", state.bytes,
      " bytes and is not that of the checkpoint that was made last (", marks_->path(), ")"));
}

absl::Status SpillTier::MarkChanges() {
  if (marks_ == nullptr || marks_->Get(Marks::kSpillChanges).a != 0) return absl::OkStatus();
  marks_->Set(Marks::kSpillChanges, {1, 0, 0});
  return marks_->Sync();
}

absl::Status SpillTier::MarkState() {
  if (marks_ == nullptr) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const KvState state, KvStateOf(RowsOptions().dir));
  marks_->Set(Marks::kSpill, {state.file, state.bytes, state.crc});
  if (marks_->Get(Marks::kSpillChanges).a == 0) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(marks_->Sync());
  marks_->Set(Marks::kSpillChanges, {0, 0, 0});
  return absl::OkStatus();
}

absl::Status SpillTier::OpenStore(bool must_exist) {
  KvOptions rows = RowsOptions();
  rows.must_exist = must_exist;
  HOTBED_RETURN_IF_ERROR(MarkChanges());
  HOTBED_ASSIGN_OR_RETURN(store_, KvStore::Open(rows));
  HOTBED_RETURN_IF_ERROR(MarkRun());
  return MarkState();
}

KvOptions SpillTier::RowsOptions() const {
  KvOptions rows = options_;
  rows.dir = dir_ + "/rows";
  rows.group_prefix_bytes = static_cast<int>(kSpillGroupBytes);
  return rows;
}

absl::StatusOr<std::shared_ptr<KvStore>> SpillTier::Use() const {
  absl::MutexLock lock(&mu_);
  if (store_ != nullptr) return store_;
  return absl::UnavailableError(absl::StrCat(
      "the spill tier in ", dir_, " is being emptied, which its disk has refused so far"));
}

absl::Status SpillTier::Flush() {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  HOTBED_RETURN_IF_ERROR(store->Flush());
  return MarkState();
}

absl::Status SpillTier::TryResume() {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  HOTBED_RETURN_IF_ERROR(MarkChanges());
  HOTBED_RETURN_IF_ERROR(store->TryResume());
  return MarkState();
}

KvStore::Usage SpillTier::GetUsage() const {
  const absl::StatusOr<std::shared_ptr<KvStore>> store = Use();
  if (store.ok()) return (*store)->GetUsage();
  KvStore::Usage usage;
  usage.background_error = std::string(store.status().message());
  usage.damaged = true;
  return usage;
}

absl::Status SpillTier::Renew() {
  absl::MutexLock lock(&mu_);
  if (store_.use_count() > 1) {
    return absl::UnavailableError(absl::StrCat("the spill tier in ", dir_,
                                               " cannot be emptied yet: its rows are being read"));
  }
  store_ = nullptr;
  journals_->ForgetAll();
  return OpenEmpty();
}

// A kill during the deletion leaves a store that cannot be opened; the mark file tells the next
// Open.
absl::Status SpillTier::OpenEmpty() {
  FileSystem* const files = FileSystem::Real();
  HOTBED_RETURN_IF_ERROR(files->WriteAtomically(RenewingMark(dir_), ""));
  if (marks_ != nullptr) marks_->Set(Marks::kSpill, {});
  std::error_code error;
  std::filesystem::remove_all(RowsOptions().dir, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("removing ", RowsOptions().dir, ": ", error.message()));
  }
  HOTBED_RETURN_IF_ERROR(OpenStore(/*must_exist=*/false));
  // If the mark stayed, the next start would delete everything written from now on.
  absl::Status unmarked = files->Delete(RenewingMark(dir_));
  if (unmarked.ok()) unmarked = files->SyncDir(dir_);
  if (!unmarked.ok()) store_ = nullptr;
  return unmarked;
}

}  // namespace hotbed
