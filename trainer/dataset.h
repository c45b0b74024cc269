// Reads a file of lines as batches, with any number of threads and over several epochs. A file of
// up to kResidentBytesMax bytes is held in memory and shuffled as a whole in each epoch. A larger
// file is read in line-aligned chunks; the order of the chunks and the lines within each are
// shuffled.
//
// Lines are split into training and held-out lines by a hash of their number, so that the split is
// the same for every thread, process and epoch. A byte order mark at the beginning is skipped. A
// line that is longer than 64 KiB is a bad line if a chunk would end within it. Thread-safe after
// Open.
#ifndef HOTBED_TRAINER_DATASET_H_
#define HOTBED_TRAINER_DATASET_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "trainer/batch.h"

namespace hotbed {

constexpr uint64_t kResidentBytesMax = 48ull << 20;

enum class DataFormat { kCriteo, kRatings };

struct DatasetOptions {
  std::string path;
  DataFormat format = DataFormat::kCriteo;
  int fields = 0;
  double held_out_fraction = 0;  // of the lines; 0: none
  bool skip_bad_lines = false;   // otherwise the first bad line ends the run, with its number
  uint64_t seed = 1;             // of split and shuffle
  int part_index = 0;            // this process reads every part_count-th chunk
  int part_count = 1;
  uint64_t chunk_bytes = 1 << 20;  // less for smaller files, so that all threads have work
};

class Dataset {
 public:
  // Reads the file once to find chunks and line numbers. NotFound if there is no such file,
  // InvalidArgument for an empty file.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const DatasetOptions& options);
  ~Dataset();

  uint64_t lines() const { return lines_; }

  // The lines that a reader gets.
  enum class Part { kTrain, kHeldOut, kAll };

  // Hands out the chunks of one epoch to several readers, in an order shuffled by (seed, epoch).
  // Thread-safe.
  class Epoch {
   public:
    Epoch(const Dataset* data, Part part, uint64_t epoch);
    // Replaces `batch` with the examples of the next chunk, shuffled when training. False at the
    // end. InvalidArgument names file, line number and error of a bad line.
    absl::StatusOr<bool> NextChunk(Batch* batch);

   private:
    absl::StatusOr<bool> NextSlice(Batch* batch);

    const Dataset* data_;
    Part part_;
    uint64_t epoch_;
    std::vector<uint32_t> order_;  // of chunks, or of resident examples
    absl::Mutex mu_;
    size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  };

  // The bad lines that were skipped so far, each counted once over all epochs. The number grows
  // until each part has been read.
  uint64_t bad_lines() const;

 private:
  struct Chunk {
    uint64_t offset;
    uint64_t bytes;
    uint64_t first_line;  // from 1
  };
  Dataset() = default;
  absl::Status FindChunks();
  // A line that no chunk holds is refused with its number, or counted.
  absl::Status PassLongLine(uint64_t line);
  absl::Status LoadResident();
  const Batch& resident(Part part) const { return part == Part::kHeldOut ? held_out_ : train_; }
  // `chunk` is one of chunks_.
  absl::Status ParseChunk(const Chunk& chunk, Part part, Batch* batch) const;

  DatasetOptions options_;
  int fd_ = -1;
  char delimiter_ = '\t';
  uint64_t lines_ = 0;
  std::vector<Chunk> chunks_;
  bool is_resident_ = false;
  Batch train_;  // resident only
  Batch held_out_;
  mutable absl::Mutex mu_;
  uint64_t long_lines_ ABSL_GUARDED_BY(mu_) = 0;
  // By chunk: bad lines among its training (or all) lines, and among its held-out lines.
  mutable std::vector<std::array<uint64_t, 2>> bad_in_chunk_ ABSL_GUARDED_BY(mu_);
};

// Appends examples [first, limit) of `source` to `target`.
void AppendExamples(const Batch& source, size_t first, size_t limit, Batch* target);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_DATASET_H_
