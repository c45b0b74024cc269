#include "trainer/dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
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
constexpr size_t kSliceExamples = 4096;  // of a resident file, handed out at a time

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
  if (size == 0)
    return absl::InvalidArgumentError(
        absl::StrCat(options_.path, " is empty: no line to train on"));
  is_resident_ = size <= kResidentBytesMax;
  const uint64_t chunk_bytes = std::clamp(size / kChunksPerFileMin, kChunkBytesMin,
                                          std::max(options_.chunk_bytes, kChunkBytesMin));
  std::string text;
  uint64_t offset = 0, line = 1;
  while (offset < size) {
    HOTBED_RETURN_IF_ERROR(
        ReadRange(fd_, offset, std::min(size - offset, chunk_bytes + kLineBytesMax), &text));
    uint64_t bytes = text.size();
    if (offset + bytes < size || bytes > chunk_bytes) {
      const size_t end = text.find('\n', std::min<uint64_t>(chunk_bytes, bytes) - 1);
      if (end == std::string::npos && offset + bytes < size) {
        return absl::InvalidArgumentError(absl::StrCat(options_.path, ": a line behind line ", line,
                                                       " is longer than ", kLineBytesMax,
                                                       " bytes"));
      }
      if (end != std::string::npos) bytes = end + 1;
    }
    if (offset == 0 && options_.format == DataFormat::kCriteo &&
        IsCriteoHeader(absl::string_view(text).substr(0, text.find('\n')))) {
      delimiter_ = ',';
    }
    chunks_.push_back({offset, bytes, line});
    line += static_cast<uint64_t>(std::count(text.begin(), text.begin() + bytes, '\n'));
    if (offset + bytes == size && text[bytes - 1] != '\n') ++line;
    offset += bytes;
  }
  lines_ = line - 1 - (delimiter_ == ',' ? 1 : 0);
  if (lines_ == 0)
    return absl::InvalidArgumentError(absl::StrCat(options_.path, " has a header but no line"));
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
  uint64_t line = chunk.first_line;
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
    absl::MutexLock lock(&mu_);
    ++bad_lines_;
  }
  return absl::OkStatus();
}

uint64_t Dataset::bad_lines() const {
  absl::MutexLock lock(&mu_);
  return bad_lines_;
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
