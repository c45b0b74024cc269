// The object store against its dumb twin, a directory, over a server that checks what it is asked
// and fails on purpose.
#include "places/s3_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/random.h"
#include "places/directory_place.h"
#include "places/s3_files.h"
#include "tests/common/fault_file_system.h"
#include "tests/common/test_seed.h"
#include "tests/places/s3_server_process.h"

namespace hotbed {
namespace s3_place_test {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

std::unique_ptr<S3Place> Connect(const S3ServerProcess& server) {
  auto place = S3Place::Make(server.options());
  EXPECT_TRUE(place.ok()) << place.status();
  return *std::move(place);
}

std::string RandomBytes(uint64_t bytes, Random* random) {
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random->Next());
  return out;
}

// Writes in pieces of random sizes.
absl::Status Write(const std::string& path, absl::string_view content, Place* place,
                   Random* random) {
  auto writer = place->Create(path);
  if (!writer.ok()) return writer.status();
  while (!content.empty()) {
    const size_t taken = std::min<size_t>(content.size(), 1 + random->Uniform(3 << 20));
    const size_t half = taken / 2;
    const absl::Status done =
        (*writer)->Append({content.substr(0, half), content.substr(half, taken - half)});
    if (!done.ok()) return done;
    content.remove_prefix(taken);
  }
  return (*writer)->Finish();
}

std::map<std::string, uint64_t> Names(const std::string& folder, Place* place) {
  const auto entries = place->List(folder);
  std::map<std::string, uint64_t> names;
  if (!entries.ok()) return {{std::string(absl::StatusCodeToString(entries.status().code())), 0}};
  for (const Place::Entry& entry : *entries) names[entry.name] = entry.bytes;
  return names;
}

TEST(S3PlaceTest, AnswersAsADirectoryDoesWhateverFails) {
  const TestSeed seed(20261127);
  Random random(seed.value());
  const S3ServerProcess server(
      absl::StrCat("--page 3 --faults 0.1 --seed ", seed.value() % 1'000'000));
  const std::unique_ptr<S3Place> objects = Connect(server);
  FaultFileSystem files(1);
  DirectoryPlace directory(&files);
  struct Twin {
    Place* place;
    std::string root;
  };
  const Twin twins[] = {{&directory, "/c"}, {objects.get(), "s3://bucket/pre fix/c&d"}};
  ASSERT_TRUE(files.MakeDir("/c").ok());
  ASSERT_TRUE(objects->Put("s3://bucket/pre fix/c&d/x", "").ok());
  ASSERT_TRUE(directory.Put("/c/x", "").ok());
  std::vector<std::string> folders;
  for (int i = 0; i < 80; ++i) {
    const std::string folder = absl::StrCat("/f", random.Uniform(5));
    const std::string name = absl::StrCat("a+b ", random.Uniform(6), "<>");
    const uint64_t what = random.Uniform(6);
    const std::string content = RandomBytes(random.Uniform(2000), &random);
    std::string answers[2];
    for (int twin = 0; twin < 2; ++twin) {
      Place* const place = twins[twin].place;
      const std::string at = twins[twin].root + folder;
      if (what == 0) {
        const bool there = place->List(at).ok();
        answers[twin] = absl::StatusCodeToString(place->MakeFolder(at).code());
        if (!there) {
          ASSERT_TRUE(place->Put(at + "/saving", "1").ok());
        }
      } else if (what == 1 && place->List(at).ok()) {
        answers[twin] =
            absl::StatusCodeToString(place->Put(absl::StrCat(at, "/", name), content).code());
      } else if (what == 2 && place->List(at).ok() && !*place->Has(at + "/new")) {
        answers[twin] =
            absl::StatusCodeToString(Write(at + "/new", content, place, &random).code());
      } else if (what == 3 && *place->Has(absl::StrCat(at, "/", name))) {
        answers[twin] = absl::StatusCodeToString(place->Delete(at, {name}).code());
      } else if (what == 4) {
        const auto got = place->ReadAll(absl::StrCat(at, "/", name));
        answers[twin] = got.ok() ? *got : absl::StatusCodeToString(got.status().code());
      } else if (what == 5) {
        const auto file = place->Open(at + "/new");
        answers[twin] = absl::StatusCodeToString(file.status().code());
        if (!file.ok()) continue;
        const uint64_t offset = content.size() % ((*file)->size() + 1);
        std::string bytes(content.size(), '\0');
        const auto got = (*file)->ReadAt(offset, bytes.size(), bytes.data());
        ASSERT_TRUE(got.ok()) << got.status();
        answers[twin] = absl::StrCat((*file)->size(), " ", bytes.substr(0, *got));
      }
    }
    ASSERT_EQ(answers[0], answers[1]) << i << ": " << what << " in " << folder;
    ASSERT_EQ(Names(twins[0].root + folder, &directory),
              Names(twins[1].root + folder, objects.get()))
        << i;
  }
  EXPECT_EQ(Names("/c", &directory).size(), Names(twins[1].root, objects.get()).size());
}

TEST(S3PlaceTest, LargeFilesGoInPartsAndAreReadByRange) {
  const TestSeed seed(11);
  Random random(seed.value());
  const S3ServerProcess server(absl::StrCat("--faults 0.2 --seed ", seed.value() % 1'000'000));
  const std::unique_ptr<S3Place> place = Connect(server);
  const std::string content = RandomBytes(2 * kS3PartBytes + 12345, &random);
  const absl::Status written = Write("s3://bucket.with.dots/large", content, place.get(), &random);
  ASSERT_TRUE(written.ok()) << written;
  const auto file = place->Open("s3://bucket.with.dots/large");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->size(), content.size());
  std::string bytes;
  for (uint64_t at = 0; at < content.size();) {  // in order, as restores read
    bytes.resize(std::min<uint64_t>(1 + random.Uniform(2 << 20), content.size() - at));
    const auto got = (*file)->ReadAt(at, bytes.size(), bytes.data());
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(content.substr(at, bytes.size()) == bytes) << at;
    at += bytes.size();
  }
  for (int i = 0; i < 5; ++i) {
    const uint64_t at = random.Uniform(content.size() + 10);
    bytes.resize(random.Uniform(100'000));
    const auto got = (*file)->ReadAt(at, bytes.size(), bytes.data());
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(content.substr(std::min(at, content.size()), bytes.size()) ==
                bytes.substr(0, *got));
  }
}

TEST(S3PlaceTest, WhatIsNotFinishedIsNotThere) {
  const S3ServerProcess server("--page 1");
  const std::unique_ptr<S3Place> place = Connect(server);
  Random random(1);
  auto kept = place->Create("s3://bucket/c/1-0-7.rows");
  ASSERT_TRUE(kept.ok());
  const std::string part(kS3PartBytes + 1, 'x');
  ASSERT_TRUE((*kept)->Append({part}).ok());
  {
    auto dropped = place->Create("s3://bucket/c/dropped");
    ASSERT_TRUE(dropped.ok() && (*dropped)->Append({part}).ok());
  }
  ASSERT_TRUE(place->Create("s3://bucket/cc/1-0-7.rows").ok());
  // Others keep their own files in the bucket, which a save and prune leave alone.
  auto foreign = place->Create("s3://bucket/c/backup.tar");
  auto deeper = place->Create("s3://bucket/c/d/e/1-0-7.rows");
  ASSERT_TRUE(foreign.ok() && (*foreign)->Append({part}).ok());
  ASSERT_TRUE(deeper.ok() && (*deeper)->Append({part}).ok());
  EXPECT_TRUE(absl::IsNotFound(place->List("s3://bucket/c").status()));
  EXPECT_EQ(*place->EndUnfinished("s3://bucket/c", 1000), 0u);  // it is younger
  EXPECT_EQ(*place->EndUnfinished("s3://bucket/c", kAll), 1u);
  EXPECT_EQ(*place->EndUnfinished("s3://bucket/c", kAll), 0u);
  const absl::Status ended = (*kept)->Finish();
  EXPECT_FALSE(ended.ok());
  EXPECT_TRUE(absl::IsNotFound(place->List("s3://bucket/c").status()));
  EXPECT_TRUE((*foreign)->Finish().ok());
  EXPECT_TRUE((*deeper)->Finish().ok());
}

// As many as fit into a request at once, and one by one where the store does not take them so.
TEST(S3PlaceTest, ManyFilesAreDeletedAtOnce) {
  for (const char* arguments : {"--faults 0.1 --seed 5", "--no-delete-objects"}) {
    SCOPED_TRACE(arguments);
    const S3ServerProcess server(arguments);
    const std::unique_ptr<S3Place> place = Connect(server);
    std::vector<std::string> names;
    for (int i = 0; i < 40; ++i) names.push_back(absl::StrCat("a&<b> ", i));
    for (const std::string& name : names) ASSERT_TRUE(place->Put("s3://bucket/c/" + name, "").ok());
    const std::string last = names.back();
    names.pop_back();
    names.push_back("not there");
    ASSERT_TRUE(place->Delete("s3://bucket/c", names).ok());
    EXPECT_THAT(Names("s3://bucket/c", place.get()), testing::ElementsAre(testing::Pair(last, 0)));
  }
  const S3ServerProcess server;
  const std::unique_ptr<S3Place> place = Connect(server);
  ASSERT_TRUE(place->Put("s3://bucket/c/locked", "").ok());
  const absl::Status refused = place->Delete("s3://bucket/c", {"locked", "other"});
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("c/locked"));
}

// A server that was slow may end a file when its folder has been deleted.
TEST(S3PlaceTest, FilesOfFoldersThatAreGoneAreDeleted) {
  const S3ServerProcess server("--page 2");
  const std::unique_ptr<S3Place> place = Connect(server);
  for (const char* file : {"gone/1-0-7.rows", "gone/1-1-7.rows", "saved/1-0-7.rows", "saved/saving",
                           "whole/1-0-7.rows", "whole/manifest.json", "other/1-0-7.rows",
                           "other/notes", "deep/er/1-0-7.rows", "1-0-7.rows"}) {
    ASSERT_TRUE(place->Put(absl::StrCat("s3://bucket/c/", file), "").ok());
  }
  EXPECT_EQ(*place->EndUnfinished("s3://bucket/c", 1000), 0u);  // they are younger
  EXPECT_EQ(*place->EndUnfinished("s3://bucket/c", kAll), 2u);
  EXPECT_TRUE(absl::IsNotFound(place->List("s3://bucket/c/gone").status()));
  for (const char* file : {"saved/1-0-7.rows", "whole/1-0-7.rows", "other/1-0-7.rows",
                           "deep/er/1-0-7.rows", "1-0-7.rows"}) {
    EXPECT_TRUE(*place->Has(absl::StrCat("s3://bucket/c/", file))) << file;
  }
}

TEST(S3PlaceTest, ALargeFileMayTakeTheStoreLongAndATrickleMayNot) {
  const S3ServerProcess server("--think 3 --trickles 1");
  S3Options options = server.options();
  options.silence_s = 1;
  const auto place = S3Place::Make(options);
  ASSERT_TRUE(place.ok()) << place.status();
  Random random(3);
  const absl::Status written = Write("s3://bucket/c/file", "some", place->get(), &random);
  ASSERT_TRUE(written.ok()) << written;
  const std::string long_text(1000, 'x');  // takes 100 s as a trickle
  ASSERT_TRUE((*place)->Put("s3://bucket/c/text", long_text).ok());
  const int64_t begun_ns = Clock::Real()->NowNs();
  const auto text = (*place)->ReadAll("s3://bucket/c/text");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, long_text);
  EXPECT_LT(Clock::Real()->NowNs() - begun_ns, 60 * kSecondNs);
}

TEST(S3PlaceTest, RefusalsNameTheReasonAndAreNotTriedAgain) {
  const S3ServerProcess server("--region eu-north-1");
  S3Options options = server.options();
  const auto put = [&options] { return (*S3Place::Make(options))->Put("s3://bucket/k", "v"); };
  EXPECT_TRUE(absl::IsInvalidArgument(put())) << put();  // the region
  options.region = "eu-north-1";
  EXPECT_TRUE(put().ok()) << put();
  options.secret_key = "another";
  EXPECT_TRUE(absl::IsPermissionDenied(put())) << put();
  EXPECT_THAT(std::string(put().message()), testing::HasSubstr("SignatureDoesNotMatch"));
  options = server.options();
  options.region = "eu-north-1";
  const auto place = S3Place::Make(options);
  const absl::Status missing = (*place)->MakeFolder("s3://missing/k");
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), testing::HasSubstr("NoSuchBucket"));
}

TEST(S3PlaceTest, AStoreThatIsAwayIsTriedForAWhileAndStopEndsThat) {
  S3Options options;
  options.endpoint = "http://127.0.0.1:1";
  options.access_key = options.secret_key = "k";
  const auto place = S3Place::Make(options);
  const int64_t begun_ns = Clock::Real()->NowNs();
  std::thread stopper([&place] {
    Clock::Real()->SleepNs(kSecondNs);
    (*place)->Stop();
  });
  const absl::Status put = (*place)->Put("s3://bucket/k", "v");
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(put)) << put;
  EXPECT_LT(Clock::Real()->NowNs() - begun_ns, 10 * kSecondNs);
}

}  // namespace s3_place_test
}  // namespace hotbed
