#include "serving/table_replica.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/changes/follow_as.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "common/threads/short_turns.h"
#include "proto/served_format.h"
#include "row_math/position.h"
#include "server/tiers/device/device_tier.h"
#include "serving/version_files.h"

namespace hotbed {
namespace {

constexpr absl::Duration kNext = absl::Milliseconds(100);
constexpr absl::Duration kAgain = absl::Milliseconds(300);  // after an error
constexpr size_t kPutsAhead = 8;  // rows of memory that are fetched before they are written
constexpr absl::Duration kReadersAgain = absl::Milliseconds(5);
constexpr uint64_t kRowsPerLook = 1024;  // rows between two looks whether a pass is to stop
constexpr absl::Duration kFullAgain = absl::Seconds(10);
constexpr absl::Duration kFullKnown = absl::Seconds(3);  // to the coordinator
constexpr int64_t kDamageForgottenNs = 3600 * kSecondNs;
constexpr int kFullPausesMax = 64;  // of these, before a table that has no room is tried again
constexpr size_t kTroubleBytesMax = 400;
constexpr char kVersionKind[] = "version, 1";

struct ReplicaCounters {
  static ReplicaCounters& Get() {
    static auto* const counters = new ReplicaCounters;
    return *counters;
  }
  Counter rows{"hotbed_serving_rows_written_total",
               "Rows that serving replicas took from their sources, at first and as they change."};
  Counter fed{"hotbed_serving_rows_fed_total",
              "Of the rows written, those that came from another serving server's copy."};
  Counter deleted{"hotbed_serving_rows_deleted_total",
                  "Rows that serving replicas dropped because their source has them no more."};
  Counter broken{"hotbed_serving_broken_rows_total",
                 "Rows that are not finite or overflow the format; they read as NaN."};
};

struct VersionCounters {
  static VersionCounters& Get() {
    static auto* const counters = new VersionCounters;
    return *counters;
  }
  Counter taken{"hotbed_serving_versions_taken_up_total",
                "Versions of tables that serving servers took up from files, or tried to.",
                {{"outcome", "ok"}}};
  Counter failed{"hotbed_serving_versions_taken_up_total",
                 "Versions of tables that serving servers took up from files, or tried to.",
                 {{"outcome", "error"}}};
};

bool Overlap(const ChangedRange& a, const ChangedRange& b) {
  return a.first < b.limit && b.first < a.limit;
}

}  // namespace

TableReplica::TableReplica(const v1::ServedTable& served, const v1::TableSpec& spec,
                           const Source& source, const std::string& feeder, ServedMemory* memory,
                           RelayMemory* relays, const Clock* clock)
    : spec_(spec),
      format_(served.format()),
      part_(ServedPartOn(served, source.server).value_or(ServedPart())),
      places_(ServedPlaces::Of(spec)),
      source_(source),
      memory_(memory),
      clock_(clock),
      relay_(std::make_unique<CopyRelay>(relays, clock)),
      rows_(NewRows()),
      elsewhere_(
          {.device = source.device == nullptr
                         ? nullptr
                         : std::make_shared<RowsOnDevice>(source.device, rows_->latest().coder())}),
      thread_([this] { Run(); }) {
  SetOrder({.staleness_ms_max = served.staleness_ms_max()});
  relay_->SetFeeder(feeder);
}

void TableReplica::Stop(bool keeps_disk) {
  {
    absl::MutexLock lock(&mu_);
    stop_ = {.asked = true, .keeps_disk = keeps_disk};
  }
  if (thread_.joinable()) thread_.join();
}

absl::Duration TableReplica::Age() const {
  const int64_t as_of_ns = as_of_ns_.load();
  if (as_of_ns == 0) return absl::InfiniteDuration();
  return absl::Nanoseconds(std::max<int64_t>(clock_->NowNs() - as_of_ns, 0));
}

uint64_t TableReplica::AgeMs() const {
  return static_cast<uint64_t>(absl::ToInt64Milliseconds(absl::Ceil(Age(), absl::Milliseconds(1))));
}

std::shared_ptr<const ServedRows> TableReplica::rows() const {
  return WritableRows()->Latest().latest;
}

std::shared_ptr<VersionedRows> TableReplica::NewRows() const {
  auto rows = std::make_shared<VersionedRows>(RowCoder(FromProto(format_), spec_.dim()), memory_);
  rows->SetLife(static_cast<uint32_t>(relay_->NewRun()));  // odd
  return rows;
}

std::shared_ptr<VersionedRows> TableReplica::WritableRows() const {
  absl::MutexLock lock(&mu_);
  return rows_;
}

std::shared_ptr<DiskRows> TableReplica::Disk() const {
  absl::MutexLock lock(&mu_);
  return elsewhere_.disk;
}

RowsView TableReplica::Latest() const {
  absl::MutexLock lock(&mu_);
  RowsView view = rows_->Latest();
  view.below = elsewhere_.disk;
  view.device = elsewhere_.device;
  return view;
}

std::shared_ptr<RowsOnDevice> TableReplica::OnDevice() const {
  absl::MutexLock lock(&mu_);
  return elsewhere_.device;
}

void TableReplica::ForgetDevice() { Replace(WritableRows()); }

// Together: a view of the rows before may not find the device's rows of those after.
void TableReplica::Replace(std::shared_ptr<VersionedRows> rows) {
  const std::shared_ptr<RowsOnDevice> before = OnDevice();
  std::shared_ptr<RowsOnDevice> next;
  if (before != nullptr) {
    before->GiveUp();  // readers that have it find nothing there
    next =
        std::make_shared<RowsOnDevice>(source_.device, RowCoder(FromProto(format_), spec_.dim()));
  }
  absl::MutexLock lock(&mu_);
  rows_.swap(rows);
  elsewhere_.device.swap(next);
  if (before != nullptr) elsewhere_.device_hits += before->hits();
}

uint64_t TableReplica::DeviceHits() const {
  absl::MutexLock lock(&mu_);
  return elsewhere_.device_hits + (elsewhere_.device == nullptr ? 0 : elsewhere_.device->hits());
}

bool TableReplica::OnDiskAlone() const {
  const std::shared_ptr<const DiskRows> disk = Disk();
  return disk != nullptr && disk->needed();
}

void TableReplica::DropDisk() {
  {
    absl::MutexLock lock(&mu_);
    elsewhere_.disk = nullptr;
  }
  if (kept_ != nullptr) {
    kept_->rows()->DeleteAtEnd();
    kept_ = nullptr;
  } else if (!source_.disk.empty()) {  // it was not open yet
    std::error_code ignored;
    std::filesystem::remove_all(absl::StrCat(source_.disk, "/", folder()), ignored);
  }
}

std::string TableReplica::folder() const {
  return absl::StrCat("t", table(), "-", v1::ServedFormat_Name(format_), "-", part_.part, "of",
                      part_.parts);
}

std::optional<RowsView> TableReplica::Version(uint64_t number) const {
  absl::MutexLock lock(&mu_);
  std::optional<RowsView> view = rows_->Version(number);
  // One that lies on disk as a whole shares no rows with the newest ones. Once memory has not all
  // rows, a version in memory, which goes then, does not know which of the others differ.
  const bool in_memory = elsewhere_.disk == nullptr || !elsewhere_.disk->needed();
  if (view.has_value() && view->below == nullptr && in_memory) view->device = elsewhere_.device;
  return view;
}

bool TableReplica::TakeUpNext(PlaceFinder* places, const std::function<bool()>& stops) {
  if (!ready()) return false;
  const std::shared_ptr<VersionedRows> rows = WritableRows();
  const std::optional<v1::ServedVersion> version = versions_.Next(clock_->NowNs(), rows.get());
  if (!version.has_value()) return false;
  const auto ends = [&] {
    if (stops() || !versions_.Wants(version->number())) return true;
    absl::MutexLock lock(&mu_);
    return stop_.asked || rows_ != rows;
  };
  absl::Status taken = TakeUp(*version, rows.get(), places, ends);
  if (!taken.ok()) rows->Drop(version->number());
  (taken.ok() ? VersionCounters::Get().taken : VersionCounters::Get().failed).Add(1);
  versions_.NoteEnd(version->number(), taken, clock_->NowNs());
  return true;
}

absl::Status TableReplica::TakeUp(const v1::ServedVersion& version, VersionedRows* rows,
                                  PlaceFinder* places, const std::function<bool()>& stops) {
  const uint64_t number = version.number();
  HOTBED_ASSIGN_OR_RETURN(Place* const place, places->Of(version.folder()));
  if (OnDiskAlone()) return TakeUpBelow(version, rows, place, stops);
  rows->Begin(number);
  HOTBED_RETURN_IF_ERROR(
      ReadVersionRows(version.folder(), spec_, part_, place, [&](const VersionRows& read) {
        if (stops()) return absl::CancelledError("it is not wanted any more");
        versions_.NoteRead(number, read.ids.size(), read.rows_in_all);
        return rows->TakeUp(number, read.ids, read.weights);
      }));
  return rows->End(number);
}

absl::Status TableReplica::TakeUpBelow(const v1::ServedVersion& version, VersionedRows* rows,
                                       Place* place, const std::function<bool()>& stops) {
  const uint64_t number = version.number();
  const RowCoder& coder = rows->latest().coder();
  HOTBED_ASSIGN_OR_RETURN(
      std::shared_ptr<DiskRows> store,
      DiskRows::Open(absl::StrCat(source_.disk, "/", folder(), "/versions/", number),
                     coder.row_bytes(), kVersionKind));
  store->DeleteAtEnd();
  std::vector<uint8_t> coded(coder.row_bytes());
  HOTBED_RETURN_IF_ERROR(
      ReadVersionRows(version.folder(), spec_, part_, place, [&](const VersionRows& read) {
        if (stops()) return absl::CancelledError("it is not wanted any more");
        versions_.NoteRead(number, read.ids.size(), read.rows_in_all);
        for (size_t i = 0; i < read.ids.size(); ++i) {
          coder.Encode(read.weights.data() + i * spec_.dim(), coded.data());
          store->Put(read.ids[i], coded.data());
        }
        return store->Commit("");
      }));
  store->SetNeeded();
  rows->AddBelow(number, std::move(store));
  return absl::OkStatus();
}

v1::ReplicaReport TableReplica::Report() const {
  v1::ReplicaReport report;
  report.set_table(table());
  report.set_format(format_);
  report.set_feeder(relay_->feeder());
  report.set_ready(ready());
  if (ready()) report.set_age_ms(AgeMs());
  report.set_part(part_.part);
  report.set_parts(part_.parts);
  report.set_full_bytes(full_bytes_.load());
  report.set_lookup_rows_total(lookup_rows_.load(std::memory_order_relaxed));
  const std::shared_ptr<const VersionedRows> rows = WritableRows();
  const std::shared_ptr<const DiskRows> disk = Disk();
  report.set_memory_rows(rows->latest().rows());
  // The disk may lack the newest ones while memory has all.
  const bool all_in_memory = disk == nullptr || (ready() && !disk->needed());
  report.set_rows(all_in_memory ? report.memory_rows() : disk->rows());
  report.set_on_disk(disk != nullptr);
  if (disk != nullptr) report.set_disk_bytes(disk->bytes());
  report.set_bytes(rows->latest().bytes());
  if (const auto device = OnDevice()) report.set_device_rows(device->rows());
  versions_.Report(*rows, &report);
  absl::MutexLock lock(&mu_);
  report.set_trouble(trouble_);
  if (trouble_.empty() && source_.device != nullptr && source_.device->tier()->failed()) {
    report.set_trouble(
        "the device has failed: rows are read from memory and disk until this server is started "
        "again");
  }
  return report;
}

bool TableReplica::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  return !AwaitFor(&mu_, absl::Condition(&stop_.asked), duration);
}

void TableReplica::SetTrouble(std::string trouble) {
  if (trouble.size() > kTroubleBytesMax) trouble.resize(kTroubleBytesMax);
  absl::MutexLock lock(&mu_);
  if (!trouble.empty() && trouble != trouble_) {
    HOTBED_LOG(Warning) << "serving " << name() << ": " << trouble;
  }
  trouble_ = std::move(trouble);
}

void TableReplica::BeginAnew() {
  as_of_ns_.store(0);
  full_ = false;
  relay_->Begin({});  // before the rows go: a list of them ends
  // Lookups that hold the old rows release them soon.
  Replace(NewRows());
}

bool TableReplica::OpenDisk() {
  for (;;) {
    const absl::Status opened = OpenDiskOnce();
    if (opened.ok()) return true;
    if (absl::IsCancelled(opened)) return false;
    SetTrouble(absl::StrCat("the folder ", source_.disk, " cannot be used: ", opened.message()));
    if (!Pause(kFullAgain)) return false;
  }
}

absl::Status TableReplica::OpenDiskOnce() {
  const std::string dir = absl::StrCat(source_.disk, "/", folder());
  // Versions are read from their files again.
  std::error_code ignored;
  std::filesystem::remove_all(absl::StrCat(dir, "/versions"), ignored);
  {
    absl::MutexLock lock(&mu_);
    elsewhere_.disk = nullptr;
  }
  kept_.reset();  // of an earlier try
  HOTBED_ASSIGN_OR_RETURN(
      kept_, KeptRows::Open(absl::StrCat(dir, "/rows"), places_, rows()->coder().row_bytes(),
                            source_.cluster, [this] { return !Pause(absl::ZeroDuration()); }));
  {
    absl::MutexLock lock(&mu_);
    elsewhere_.disk = kept_->rows();
  }
  // Memory may have newer rows than the disk.
  return ready() ? absl::OkStatus() : Warm();
}

bool TableReplica::ReopenDisk() {
  if (kept_->rows()->needed()) BeginAnew();
  {
    absl::MutexLock lock(&mu_);
    elsewhere_.disk = nullptr;
  }
  // The folder is one store's at a time: readers of the old one end soon.
  while (kept_->rows().use_count() > 1) {
    if (!Pause(kReadersAgain)) return false;
  }
  return OpenDisk();
}

absl::Status TableReplica::Warm() {
  const std::shared_ptr<VersionedRows> rows = WritableRows();
  absl::Status put;
  uint64_t seen = 0;
  HOTBED_RETURN_IF_ERROR(kept_->rows()->Scan([&](uint64_t id, const uint8_t* row) {
    put = rows->PutRow(id, row);
    if (++seen % kRowsPerLook == 0 && !Pause(absl::ZeroDuration())) {
      put = absl::CancelledError("the copy ends");
    }
    return put.ok();
  }));
  if (!absl::IsResourceExhausted(put)) return put;
  kept_->rows()->SetNeeded();
  return absl::OkStatus();
}

absl::Status TableReplica::Promote() {
  const std::shared_ptr<VersionedRows> rows = WritableRows();
  std::vector<uint64_t> read = kept_->rows()->TakeRead();
  if (read.empty()) return absl::OkStatus();
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  std::vector<uint64_t> left;  // memory
  std::vector<uint8_t> left_rows;
  const absl::Status found =
      kept_->rows()->Find(read, [&](size_t, uint64_t id, const uint8_t* row) {
        if (rows->latest().Get(id) != nullptr || rows->PutRow(id, row).ok()) return;
        const uint64_t random = Mix64(id ^ static_cast<uint64_t>(clock_->NowNs()));
        const std::optional<uint64_t> other = rows->MakePlaceFor(id, random, &left_rows);
        if (other.has_value()) left.push_back(*other);
        (void)rows->PutRow(id, row);  // it stays on disk alone while readers look at the other
      });
  rows->Reclaim();
  if (const auto device = OnDevice())
    device->BringUp(left, left_rows.data(), kept_->rows()->rows());
  return found;
}

absl::Status TableReplica::BringUp() {
  const std::shared_ptr<RowsOnDevice> device = OnDevice();
  if (device == nullptr) return absl::OkStatus();
  const std::shared_ptr<VersionedRows> rows = WritableRows();
  const uint32_t row_bytes = rows->latest().coder().row_bytes();
  std::vector<uint64_t> ids, below;
  std::vector<uint8_t> found;
  const auto add = [&](uint64_t id, const uint8_t* row) {
    ids.push_back(id);
    found.insert(found.end(), row, row + row_bytes);
  };
  for (const uint64_t id : device->TakeWanted()) {
    if (const uint8_t* const row = rows->latest().Get(id)) {
      add(id, row);
    } else {
      below.push_back(id);
    }
  }
  if (!below.empty() && kept_ != nullptr && kept_->rows()->needed()) {
    HOTBED_RETURN_IF_ERROR(
        kept_->rows()->Find(below, [&](size_t, uint64_t id, const uint8_t* row) { add(id, row); }));
  }
  device->BringUp(ids, found.data(),
                  kept_ == nullptr ? rows->latest().rows() : kept_->rows()->rows());
  return absl::OkStatus();
}

// Loading takes work of the sources: it is tried again when more room is free than it has had, and
// else ever more rarely.
bool TableReplica::PauseUntilRoom() {
  const uint64_t had = full_bytes_.load();
  // By then the coordinator knows whether other copies are as full as this one.
  if (ready() && !Pause(kFullKnown)) return false;
  for (int pauses = 1;; ++pauses) {
    // Another copy may answer by now.
    if (rows()->rows() > 0 && !(ready() && order_.alone.load())) BeginAnew();
    if (!Pause(kFullAgain)) return false;
    const uint64_t has = rows()->bytes();
    const uint64_t wanted = had + had / 8 - std::min(has, had);
    const uint64_t used = std::min(memory_->used(), memory_->bytes_max());
    if (memory_->bytes_max() - used > wanted || pauses >= failures_.full_pauses) break;
  }
  failures_.full_pauses = std::min(2 * failures_.full_pauses, kFullPausesMax);
  return true;
}

// A disk that damages rows again and again is not filled all the time.
bool TableReplica::PauseAfterDamage() {
  const int64_t now_ns = clock_->NowNs();
  const bool again = failures_.damages > 0 && now_ns - failures_.damaged_ns < kDamageForgottenNs;
  failures_.damages = again ? failures_.damages + 1 : 1;
  failures_.damaged_ns = now_ns;
  return !again || Pause(kFullAgain * (1 << std::min(failures_.damages - 2, 6)));
}

void TableReplica::Run() {
  TakeShortTurns();  // lookups need a processor while thousands of rows are written
  if (!source_.disk.empty() && !OpenDisk()) return;
  FollowAlways();
  {
    absl::MutexLock lock(&mu_);
    if (!stop_.keeps_disk) return;
  }
  // Rows that the disk does not take now come again.
  if (kept_ != nullptr) (void)kept_->WriteNoted();
}

void TableReplica::FollowAlways() {
  do {
    const absl::Status error = FollowOnce();
    if (error.ok()) return;
    SetTrouble(std::string(error.message()));
    if (kept_ != nullptr && kept_->rows()->damaged() && (!PauseAfterDamage() || !ReopenDisk())) {
      return;
    }
    if (!full_) continue;
    full_ = false;
    full_bytes_.store(std::max<uint64_t>(rows()->bytes(), 1));
    if (!PauseUntilRoom()) return;
  } while (Pause(kAgain));
}

absl::Status TableReplica::FollowOnce() {
  FollowOptions options;
  options.patience = absl::InfiniteDuration();
  options.first_place = places_.FirstOf(part_);
  options.limit_place = places_.FirstOf({part_.part + 1, part_.parts});
  if (kept_ != nullptr) options.from = kept_->Positions();
  CopyFeed feed;
  feed.copy.set_table(table());
  feed.copy.set_part(part_.part);
  feed.copy.set_parts(part_.parts);
  feed.copy.set_format(format_);
  feed.feeder = [this] { return relay_->feeder(); };
  HOTBED_ASSIGN_OR_RETURN(
      const std::unique_ptr<CopyStream> stream,
      FollowAs(source_.coordinators, source_.identity, spec_, options, std::move(feed)));
  // Rows of the disk may be gone while memory has them.
  const bool on_disk = kept_ != nullptr && kept_->rows()->rows() > 0;
  comes_again_ = options.from.empty() && (rows()->rows() > 0 || on_disk);
  // Memory may have newer rows than the positions of the disk, once a stream has told it some. A
  // copy whose rows are joined of slices feeds no other.
  const bool feeds = !std::exchange(followed_, true) && spec_.column_slices() <= 1;
  relay_->Begin(feeds ? options.from : ChangePositions());
  again_.clear();
  if (kept_ != nullptr) HOTBED_RETURN_IF_ERROR(kept_->BeginStream());
  if (comes_again_) {
    ForgetDevice();
    // Whatever an earlier stream has told, all rows come again by this one.
    WritableRows()->Unmark([](uint64_t) { return true; });
    if (kept_ != nullptr) {
      HOTBED_RETURN_IF_ERROR(kept_->BeginAgain({.first = 0, .limit = ~uint64_t{0}}, {}));
    }
  }
  return Follow(stream.get());
}

absl::Status TableReplica::Follow(CopyStream* stream) {
  for (;;) {
    HOTBED_ASSIGN_OR_RETURN(const std::optional<CopyChanges> changes, stream->NextOfCopy(kNext));
    if (changes.has_value()) HOTBED_RETURN_IF_ERROR(Apply(*changes, *stream));
    // Before the age is looked at: a pause of the process between the two must not make it less.
    const int64_t now_ns = clock_->NowNs();
    const absl::Duration age = stream->Age();
    if (age < absl::InfiniteDuration()) {
      HOTBED_RETURN_IF_ERROR(EndAgain(*stream));
      // Rows that were there before, or that were never there, may be as new as this.
      if (as_of_ns_.load() == 0) WritableRows()->NoteChange(now_ns);
      as_of_ns_.store(std::max<int64_t>(now_ns - absl::ToInt64Nanoseconds(age), 1));
      full_bytes_.store(0);
      failures_.full_pauses = 1;
      SetTrouble("");
    }
    if (kept_ != nullptr) {
      if (kept_->rows()->damaged()) {  // a reader has found that
        return absl::DataLossError("rows on disk are damaged: they are read again");
      }
      if (kept_->rows()->needed() && !comes_again_) HOTBED_RETURN_IF_ERROR(Promote());
      HOTBED_RETURN_IF_ERROR(kept_->WriteIfDue(now_ns));
    }
    if (ready() && !comes_again_) HOTBED_RETURN_IF_ERROR(BringUp());
    if (!Pause(absl::ZeroDuration())) return absl::OkStatus();
  }
}

absl::Status TableReplica::PutOnDisk(const Taken& taken, const VersionedRows& rows) {
  const uint32_t row_bytes = rows.latest().coder().row_bytes();
  for (size_t i = 0; i < taken.changes.ids.size(); ++i) {
    const uint64_t id = taken.changes.ids[i];
    // While rows come again, memory may have some that the disk has lost.
    const bool known = !comes_again_ && rows.latest().Get(id) != nullptr;
    kept_->rows()->Put(id, taken.coded.data() + i * row_bytes, known);
  }
  for (const uint64_t id : taken.changes.deleted) kept_->rows()->Delete(id);
  return kept_->Commit(taken.positions);
}

absl::Status TableReplica::PutInMemory(const Taken& taken, size_t i, VersionedRows* rows) {
  const uint64_t id = taken.changes.ids[i];
  if (kept_ != nullptr && kept_->rows()->needed() && rows->latest().Get(id) == nullptr)
    return absl::OkStatus();
  const uint32_t row_bytes = rows->latest().coder().row_bytes();
  const absl::Status put = rows->PutRow(id, taken.coded.data() + i * row_bytes);
  full_ = absl::IsResourceExhausted(put);
  if (!full_ || kept_ == nullptr) return put;
  full_ = false;
  if (kept_->Notes()) {  // else the disk has all of it already
    HOTBED_RETURN_IF_ERROR(kept_->WriteNoted());
    HOTBED_RETURN_IF_ERROR(PutOnDisk(taken, *rows));
  }
  kept_->rows()->SetNeeded();
  rows->Delete(id);
  return absl::OkStatus();
}

absl::Status TableReplica::ApplyInMemory(const Taken& taken, VersionedRows* rows) {
  for (size_t i = 0; i < taken.changes.ids.size(); ++i) {
    if (i + kPutsAhead < taken.changes.ids.size()) {
      rows->latest().PrefetchPut(taken.changes.ids[i + kPutsAhead]);
    }
    HOTBED_RETURN_IF_ERROR(PutInMemory(taken, i, rows));
  }
  uint64_t deleted = 0;
  for (const uint64_t id : taken.changes.deleted) deleted += rows->Delete(id) ? 1 : 0;
  ReplicaCounters::Get().deleted.Add(deleted);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint8_t>> TableReplica::Coded(const CopyChanges& changes,
                                                         const RowCoder& coder) {
  const size_t count = changes.ids.size();
  if (changes.coded ? changes.bytes.size() != count * coder.row_bytes()
                    : changes.rows.size() != count * spec_.dim()) {
    return absl::InternalError(
        absl::StrCat("rows of ", name(), " come with ",
                     changes.coded ? absl::StrCat(changes.bytes.size(), " bytes for ", count,
                                                  " ids of ", coder.row_bytes(), " bytes")
                                   : absl::StrCat(changes.rows.size(), " elements for ", count,
                                                  " ids of dim ", spec_.dim())));
  }
  if (changes.coded) return std::vector<uint8_t>(changes.bytes.begin(), changes.bytes.end());
  std::vector<uint8_t> coded(count * coder.row_bytes());
  uint64_t broken = 0;
  for (size_t i = 0; i < count; ++i) {
    uint8_t* const row = coded.data() + i * coder.row_bytes();
    broken += coder.Encode(changes.rows.data() + i * spec_.dim(), row) ? 0 : 1;
  }
  if (broken > 0) ReplicaCounters::Get().broken.Add(broken);
  return coded;
}

absl::Status TableReplica::Apply(const CopyChanges& changes, const ChangeStream& stream) {
  if (changes.again) {
    comes_again_ = true;  // before the relay knows: no list begins in between
    ForgetDevice();       // rows that do not come again go without being told
    relay_->Took(changes, {});
    again_.push_back(changes.range);
    return kept_ == nullptr ? absl::OkStatus()
                            : kept_->BeginAgain(changes.range, stream.Positions());
  }
  relay_->Takes(changes);
  const std::shared_ptr<VersionedRows> rows = WritableRows();
  rows->NoteChange(clock_->NowNs());
  const bool first_again = std::any_of(again_.begin(), again_.end(), [&](const ChangedRange& part) {
    return Overlap(part, changes.range);
  });
  if (first_again) UnmarkAgain(rows.get());
  HOTBED_ASSIGN_OR_RETURN(std::vector<uint8_t> coded, Coded(changes, rows->latest().coder()));
  const Taken taken = {changes, std::move(coded), stream.Positions()};
  // Before memory: a row that is not there is read from disk.
  if (kept_ != nullptr && kept_->Notes()) {
    kept_->Note(changes.ids, changes.deleted, taken.positions, rows->Latest().latest);
  } else if (kept_ != nullptr) {
    HOTBED_RETURN_IF_ERROR(PutOnDisk(taken, *rows));
  }
  // On the device after disk and before memory (rows_on_device.h).
  const std::shared_ptr<RowsOnDevice> device = OnDevice();
  const auto in_memory = [&] { return ApplyInMemory(taken, rows.get()); };
  HOTBED_RETURN_IF_ERROR(device == nullptr ? in_memory()
                                           : device->Change(changes.ids, taken.coded.data(),
                                                            changes.deleted, in_memory));
  if (kept_ != nullptr && kept_->Notes()) kept_->Took(taken.positions);
  rows->Reclaim();
  ReplicaCounters::Get().rows.Add(changes.ids.size());
  if (changes.coded) ReplicaCounters::Get().fed.Add(changes.ids.size());
  relay_->Took(changes, taken.coded);
  return absl::OkStatus();
}

// One pass for all parts that were announced together.
void TableReplica::UnmarkAgain(VersionedRows* rows) {
  rows->Unmark([this](uint64_t id) {
    const uint64_t place = places_.PlaceOf(id);
    return std::any_of(again_.begin(), again_.end(), [place](const ChangedRange& part) {
      return place >= part.first && place < part.limit;
    });
  });
  again_.clear();
}

absl::Status TableReplica::EndAgain(const ChangeStream& stream) {
  if (kept_ != nullptr) HOTBED_RETURN_IF_ERROR(kept_->EndAgain(stream.Positions()));
  if (!comes_again_) return absl::OkStatus();
  const std::shared_ptr<VersionedRows> rows = WritableRows();
  if (!again_.empty()) UnmarkAgain(rows.get());
  rows->NoteChange(clock_->NowNs());
  ReplicaCounters::Get().deleted.Add(rows->DeleteUnmarked());
  rows->Reclaim();
  comes_again_ = false;
  return absl::OkStatus();
}

}  // namespace hotbed
