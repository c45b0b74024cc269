// Rows of a file that are there in the end.
#include "checkpoint/gone_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/file_system.h"
#include "places/directory_place.h"
#include "row_math/touches.h"

namespace hotbed {
namespace gone_rows_test {

constexpr uint32_t kWeightBytes = 8;
constexpr uint32_t kDeletes = ~0u;

// id -> touches, or kDeletes; by pass.
using Passes = std::vector<std::map<uint64_t, uint32_t>>;

// The rows that are there in the end, with their touches (or with their pass where there is no
// state).
std::map<uint64_t, uint32_t> RowsOf(const Passes& passes, uint32_t admit_after, bool with_state) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/gone_rows_", getpid());
  std::filesystem::create_directories(directory);
  const std::string path = absl::StrCat(directory, "/rows");
  DirectoryPlace place(FileSystem::Real());
  TableSpec table;
  table.optimizer.touches = true;
  table.life.admission.after = admit_after;
  const uint32_t bytes = kWeightBytes + (with_state ? kTouchBytes : 0);
  auto writer = RowsFileWriter::Create(path, {false, kWeightBytes, bytes, false}, &place);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const auto& pass : passes) {
    (*writer)->BeginPass();
    std::vector<uint64_t> ids, deleted;
    std::vector<uint8_t> payloads;
    for (const auto& [id, touches] : pass) {
      (touches == kDeletes ? deleted : ids).push_back(id);
      if (touches == kDeletes) continue;
      payloads.resize(payloads.size() + bytes);
      if (with_state) StoreTouches({touches, 7, 8}, &payloads[payloads.size() - kTouchBytes]);
    }
    const absl::Status rows = ids.empty() ? absl::OkStatus() : (*writer)->AddRows(ids, payloads);
    const absl::Status gone = deleted.empty() ? absl::OkStatus() : (*writer)->AddDeleted(deleted);
    EXPECT_TRUE(rows.ok() && gone.ok()) << rows << gone;
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  auto file = RowsFileReader::Open(path, (*writer)->bytes(), (*writer)->index_crc(), &place);
  EXPECT_TRUE(file.ok()) << file.status();
  const auto gone = GoneRows::Read(table, file->get());
  EXPECT_TRUE(gone.ok()) << gone.status();
  std::map<uint64_t, uint32_t> rows;
  for (const RowsFileEntry& entry : (*file)->index()) {
    if (entry.kind != RowsFileBlock::kRows) continue;
    std::vector<uint64_t> ids;
    std::vector<uint8_t> payloads;
    EXPECT_TRUE((*file)->ReadRows(entry, &ids, &payloads).ok());
    for (size_t k = 0; k < ids.size(); ++k) {
      const uint8_t* const payload = payloads.data() + k * bytes;
      if (gone->Has(ids[k], entry.pass, payload)) continue;
      rows[ids[k]] = with_state ? LoadTouches(payload + kWeightBytes).count : entry.pass;
    }
  }
  std::filesystem::remove_all(directory);
  return rows;
}

TEST(GoneRowsTest, CandidatesAreNoRowsWhateverTheyReplace) {
  const Passes passes = {
      {{1, 3}, {2, 2}, {3, 1}, {4, 5}, {5, 5}}, {{2, 3}, {4, 1}, {5, kDeletes}}, {{5, 1}}};
  EXPECT_EQ(RowsOf(passes, 3, /*with_state=*/true), (std::map<uint64_t, uint32_t>{{1, 3}, {2, 3}}));
  EXPECT_EQ(RowsOf(passes, 0, /*with_state=*/true),
            (std::map<uint64_t, uint32_t>{{1, 3}, {2, 3}, {3, 1}, {4, 1}, {5, 1}}));
}

TEST(GoneRowsTest, WithoutStateOnlyDeletedRowsAreGone) {
  const Passes passes = {{{1, 0}, {2, 0}, {3, 0}}, {{2, kDeletes}, {3, 0}}};
  EXPECT_EQ(RowsOf(passes, 3, /*with_state=*/false),
            (std::map<uint64_t, uint32_t>{{1, 1}, {3, 2}}));
}

}  // namespace gone_rows_test
}  // namespace hotbed
