#include "trainer/dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "row_math/position.h"
#include "trainer/criteo_format.h"
#include "trainer/ratings_format.h"

namespace hotbed {
namespace {

constexpr uint64_t kChunksPerFileMin = 64;
constexpr uint64_t kChunkBytesMin = 16 << 10;
constexpr uint64_t kLineBytesMax = 64 << 10;
constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kSliceExamples = 4096;  // of a resident file, per call of NextChunk

absl::Status ReadRange(int fd, uint64_t offset, uint64_t bytes, std::string* text) {
  text->resize(bytes);
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t n =
        pread(fd, text->data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(absl::StrCat("read failed: ", std::strerror(errno)));
    if (n == 0) break;
    done += static_cast<uint64_t>(n);
  }
  text->resize(done);
  return absl::OkStatus();
}

// The offset behind the line that contains `offset`. Reads in pieces, because a line may be as long
// as the file.
absl::StatusOr<uint64_t> EndOfLine(int fd, uint64_t offset, uint64_t size) {
  std::string text;
  while (offset < size) {
    HOTBED_RETURN_IF_ERROR(ReadRange(fd, offset, std::min(size - offset, kLineBytesMax), &text));
    const size_t end = text.find('\n');
    if (end != std::string::npos) return offset + end + 1;
    if (text.empty()) break;  // the file was truncated meanwhile
    offset += text.size();
  }
  return size;
}

// Applies one permutation to all columns.
void Shuffle(Random* random, Batch* batch) {
  for (size_t i = batch->size(); i > 1; --i) {
    const size_t j = random->Uniform(i);
    std::swap(batch->labels[i - 1], batch->labels[j]);
    for (auto& column : batch->ids) std::swap(column[i - 1], column[j]);
  }
}

}  // namespace

void AppendExamples(const Batch& source, size_t first, size_t limit, Batch* target) {
  for (size_t f = 0; f < source.ids.size(); ++f) {
    target->ids[f].insert(target->ids[f].end(), source.ids[f].begin() + first,
                          source.ids[f].begin() + limit);
  }
  target->labels.insert(target->labels.end(), source.labels.begin() + first,
                        source.labels.begin() + limit);
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const DatasetOptions& options) {
  std::unique_ptr<Dataset> data(new Dataset());
  data->options_ = options;
  data->fd_ = open(options.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (data->fd_ < 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot open ", options.path, ": ", std::strerror(errno)));
  }
  HOTBED_RETURN_IF_ERROR(data->FindChunks());
  if (data->is_resident_) HOTBED_RETURN_IF_ERROR(data->LoadResident());
  return data;
}

Dataset::~Dataset() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Dataset::FindChunks() {
  struct stat info;
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(options_.path, " is not a regular file"));
  }
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  std::string text;
  HOTBED_RETURN_IF_ERROR(ReadRange(fd_, 0, kLineBytesMax, &text));
  // Spreadsheets begin a file with this mark, which is not part of the first field.
  uint64_t offset = absl::StartsWith(text, kByteOrderMark) ? kByteOrderMark.size() : 0;
  if (size <= offset)
    return absl::InvalidArgumentError(
        absl::StrCat(options_.path, " is empty: no line to train on"));
  if (options_.format == DataFormat::kCriteo && IsCriteoHeader(text.substr(offset))) {
    delimiter_ = ',';
  }
  is_resident_ = size <= kResidentBytesMax;
  const uint64_t chunk_bytes = std::clamp(size / kChunksPerFileMin, kChunkBytesMin,
                                          std::max(options_.chunk_bytes, kChunkBytesMin));
  uint64_t line = 1;
  while (offset < size) {
    HOTBED_RETURN_IF_ERROR(
        ReadRange(fd_, offset, std::min(size - offset, chunk_bytes + kLineBytesMax), &text));
    if (text.empty()) break;  // the file was truncated meanwhile
    uint64_t bytes = text.size();
    bool is_cut = false;  // the chunk ends within a line that is too long
    if (offset + bytes < size || bytes > chunk_bytes) {
      const size_t end = text.find('\n', std::min<uint64_t>(chunk_bytes, bytes) - 1);
      is_cut = end == std::string::npos && offset + bytes < size;
      if (end != std::string::npos) bytes = end + 1;
      if (is_cut) bytes = text.rfind('\n') + 1;  // npos + 1 is 0: no whole line before it
    }
    if (bytes > 0) chunks_.push_back({offset, bytes, line});
    line += static_cast<uint64_t>(std::count(text.begin(), text.begin() + bytes, '\n'));
    if (offset + bytes == size && text[bytes - 1] != '\n') ++line;
    offset += bytes;
    if (!is_cut) continue;
    HOTBED_RETURN_IF_ERROR(PassLongLine(line));
    HOTBED_ASSIGN_OR_RETURN(offset, EndOfLine(fd_, offset, size));
    ++line;
  }
  {
    absl::MutexLock lock(&mu_);
    bad_in_chunk_.resize(chunks_.size());
  }
  lines_ = line - 1 - (delimiter_ == ',' ? 1 : 0);
  if (lines_ == 0)
    return absl::InvalidArgumentError(absl::StrCat(options_.path, " has a header but no line"));
  return absl::OkStatus();
}

absl::Status Dataset::PassLongLine(uint64_t line) {
  if (!options_.skip_bad_lines) {
    return absl::InvalidArgumentError(absl::StrCat(options_.path, " line ", line, ": longer than ",
                                                   kLineBytesMax,
                                                   " bytes (--skip-bad-lines goes on without it)"));
  }
  absl::MutexLock lock(&mu_);
  ++long_lines_;
  return absl::OkStatus();
}

absl::Status Dataset::LoadResident() {
  train_.Reset(options_.fields);
  held_out_.Reset(options_.fields);
  for (const Chunk& chunk : chunks_) {
    HOTBED_RETURN_IF_ERROR(ParseChunk(chunk, Part::kTrain, &train_));
    HOTBED_RETURN_IF_ERROR(ParseChunk(chunk, Part::kHeldOut, &held_out_));
  }
  return absl::OkStatus();
}

absl::Status Dataset::ParseChunk(const Chunk& chunk, Part part, Batch* batch) const {
  std::string text;
  HOTBED_RETURN_IF_ERROR(ReadRange(fd_, chunk.offset, chunk.bytes, &text));
  const absl::string_view all(text);
  uint64_t line = chunk.first_line, bad = 0;
  for (size_t first = 0; first < all.size(); ++line) {
    size_t limit = all.find('\n', first);
    if (limit == absl::string_view::npos) limit = all.size();
    const absl::string_view row = all.substr(first, limit - first);
    first = limit + 1;
    if (line == 1 && delimiter_ == ',') continue;
    const bool held_out = static_cast<double>(Mix64(line ^ Mix64(options_.seed)) >> 11) * 0x1p-53 <
                          options_.held_out_fraction;
    if (part != Part::kAll && held_out != (part == Part::kHeldOut)) continue;
    const absl::Status status = options_.format == DataFormat::kCriteo
                                    ? AppendCriteoLine(row, delimiter_, batch)
                                    : AppendRatingLine(row, batch);
    if (status.ok()) continue;
    if (!options_.skip_bad_lines) {
      return absl::InvalidArgumentError(absl::StrCat(options_.path, " line ", line, ": ",
                                                     status.message(),
                                                     " (--skip-bad-lines goes on without it)"));
    }
    ++bad;
  }
  // Set and not added, because a chunk is read again in each epoch.
  absl::MutexLock lock(&mu_);
  bad_in_chunk_[&chunk - chunks_.data()][part == Part::kHeldOut ? 1 : 0] = bad;
  return absl::OkStatus();
}

uint64_t Dataset::bad_lines() const {
  absl::MutexLock lock(&mu_);
  uint64_t bad = long_lines_;
  for (const auto& [train, held_out] : bad_in_chunk_) bad += train + held_out;
  return bad;
}

Dataset::Epoch::Epoch(const Dataset* data, Part part, uint64_t epoch)
    : data_(data), part_(part), epoch_(epoch) {
  const size_t pieces = data->is_resident_ ? data->resident(part).size() : data->chunks_.size();
  for (size_t i = 0; i < pieces; ++i) {
    if (part == Part::kTrain &&
        static_cast<int>(i % data->options_.part_count) != data->options_.part_index) {
      continue;
    }
    order_.push_back(static_cast<uint32_t>(i));
  }
  if (part != Part::kTrain) return;
  Random random(Mix64(data->options_.seed) + epoch);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Uniform(i)]);
}

absl::StatusOr<bool> Dataset::Epoch::NextSlice(Batch* batch) {
  const Batch& all = data_->resident(part_);
  size_t first, limit;
  {
    absl::MutexLock lock(&mu_);
    if (next_ == order_.size()) return false;
    first = next_;
    limit = next_ = std::min(order_.size(), first + kSliceExamples);
  }
  batch->Reset(data_->options_.fields);
  for (size_t i = first; i < limit; ++i) {
    for (size_t f = 0; f < all.ids.size(); ++f) batch->ids[f].push_back(all.ids[f][order_[i]]);
    batch->labels.push_back(all.labels[order_[i]]);
  }
  return true;
}

absl::StatusOr<bool> Dataset::Epoch::NextChunk(Batch* batch) {
  if (data_->is_resident_) return NextSlice(batch);
  uint32_t index;
  {
    absl::MutexLock lock(&mu_);
    if (next_ == order_.size()) return false;
    index = order_[next_++];
  }
  batch->Reset(data_->options_.fields);
  HOTBED_RETURN_IF_ERROR(data_->ParseChunk(data_->chunks_[index], part_, batch));
  if (part_ == Part::kTrain) {
    Random random(Mix64(data_->options_.seed ^ (epoch_ << 32)) + index);
    Shuffle(&random, batch);
  }
  return true;
}

}  // namespace hotbed
