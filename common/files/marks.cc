#include "common/files/marks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr char kMagic[] = "HOTBEDMARKS 1\n";
constexpr uint64_t kFileBytes = 4096;
constexpr uint64_t kSlotsAt = 64;
constexpr uint32_t kCrcSeed = 0x6d61726b;  // so that zeros are no valid slot

}  // namespace

absl::StatusOr<std::unique_ptr<Marks>> Marks::Open(const std::string& path, FileSystem* files,
                                                   bool make) {
  const bool exists = files->Exists(path);
  if (!exists && !make) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  // Memory beyond the end of a file cannot be read.
  if (exists) {
    HOTBED_ASSIGN_OR_RETURN(const uint64_t size, files->FileSize(path));
    if (size != kFileBytes && !(make && size == 0)) {
      return absl::DataLossError(
          absl::StrCat(path, " has ", size, " bytes and must have ", kFileBytes));
    }
  }
  HOTBED_ASSIGN_OR_RETURN(auto file, files->OpenShared(path, kFileBytes));
  if (make && file->data()[0] == '\0') {
    std::memcpy(file->data(), kMagic, sizeof(kMagic));
    HOTBED_RETURN_IF_ERROR(file->Sync());
    HOTBED_RETURN_IF_ERROR(files->SyncDir(ParentOf(path)));
  }
  auto marks = absl::WrapUnique(new Marks(path, std::move(file)));
  HOTBED_RETURN_IF_ERROR(marks->Load());
  return marks;
}

char* Marks::SlotAt(int field, uint32_t turn) const {
  return file_->data() + kSlotsAt + sizeof(Slot) * (2 * field + turn % 2);
}

absl::Status Marks::Load() {
  absl::MutexLock lock(&mu_);
  if (std::memcmp(file_->data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::DataLossError(absl::StrCat(path_, " is damaged: it begins with other bytes"));
  }
  for (int field = 0; field < kFields; ++field) {
    int damaged = 0;
    for (uint32_t turn : {0u, 1u}) {
      Slot slot;
      std::memcpy(&slot, SlotAt(field, turn), sizeof(slot));
      const uint32_t crc = Crc32c(&slot, offsetof(Slot, crc), kCrcSeed);
      if (slot.crc == crc && slot.field == static_cast<uint32_t>(field)) {
        if (slot.turn > newest_[field].turn) newest_[field] = slot;
      } else if (slot.turn != 0 || slot.crc != 0) {
        ++damaged;
      }
    }
    if (damaged > 0 && newest_[field].turn == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, " is damaged: mark ", field, " fails its checksum"));
    }
  }
  return absl::OkStatus();
}

Mark Marks::Get(Field field) const {
  absl::MutexLock lock(&mu_);
  return {newest_[field].a, newest_[field].b, newest_[field].c};
}

void Marks::Set(Field field, const Mark& mark) {
  absl::MutexLock lock(&mu_);
  Slot& slot = newest_[field];
  if (slot.turn != 0 && mark == Mark{slot.a, slot.b, slot.c}) return;
  slot.a = mark.a;
  slot.b = mark.b;
  slot.c = mark.c;
  slot.turn += 1;
  slot.field = static_cast<uint32_t>(field);
  slot.crc = Crc32c(&slot, offsetof(Slot, crc), kCrcSeed);
  std::memcpy(SlotAt(field, slot.turn), &slot, sizeof(slot));
}

}  // namespace hotbed
