#include "server/export/own_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace own_disk_test {

using Change = v1::ChangeFilesRequest;

class OwnDiskTest : public testing::Test {
 protected:
  absl::Status Do(Change::Action action, const std::string& path,
                  const std::vector<std::string>& names = {}) {
    Change request;
    request.set_action(action);
    request.set_path(path);
    for (const std::string& name : names) request.add_files(name);
    return ChangeOwnFiles("/data/checkpoints", request, &files_);
  }
  absl::Status Put(const std::string& path, const std::string& content, uint64_t offset,
                   bool last) {
    Change request;
    request.set_action(Change::PUT);
    request.set_path(path);
    request.set_offset(offset);
    request.set_content(content);
    request.set_last(last);
    return ChangeOwnFiles("/data/checkpoints", request, &files_);
  }
  absl::StatusOr<v1::ReadFilesReply> Read(const std::string& path, uint64_t offset = 0,
                                          uint32_t bytes = 1000) {
    v1::ReadFilesRequest request;
    request.set_path(path);
    request.set_offset(offset);
    request.set_bytes(bytes);
    return ReadOwnFiles("/data/checkpoints", request, &files_);
  }
  std::vector<std::string> List(const std::string& path) {
    v1::ReadFilesRequest request;
    request.set_path(path);
    request.set_list(true);
    const auto reply = ReadOwnFiles("/data/checkpoints", request, &files_);
    std::vector<std::string> names;
    if (reply.ok()) {
      for (const auto& entry : reply->entries()) names.push_back(entry.name());
    }
    return names;
  }

  FaultFileSystem files_{1};
};

TEST_F(OwnDiskTest, AFolderIsMadeFilledListedAndDeleted) {
  EXPECT_TRUE(absl::IsNotFound(Read("server:ctr/one").status()));
  EXPECT_TRUE(absl::IsNotFound(Put("server:ctr/one/saving", "7", 0, true)));
  ASSERT_TRUE(Do(Change::MAKE_FOLDER, "server:ctr/one").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Do(Change::MAKE_FOLDER, "server:ctr/one")));
  ASSERT_TRUE(Put("server:ctr/one/saving", "7", 0, true).ok());
  EXPECT_EQ(Read("server:ctr/one/saving")->content(), "7");
  EXPECT_EQ(Read("server:ctr/one/saving", 0, 0)->file_bytes(), 1u);
  EXPECT_THAT(List("server:ctr"), testing::ElementsAre("one"));
  EXPECT_FALSE(Do(Change::DELETE_FOLDER, "server:ctr/one").ok()) << "it is not empty";
  ASSERT_TRUE(Do(Change::DELETE, "server:ctr/one", {"saving", "not-there"}).ok());
  ASSERT_TRUE(Do(Change::DELETE_FOLDER, "server:ctr/one").ok());
  EXPECT_TRUE(List("server:ctr").empty());
  // A deleted file may be deleted again, by a client that did not hear of it.
  EXPECT_TRUE(Do(Change::DELETE, "server:ctr/one", {"saving"}).ok());
  EXPECT_TRUE(Do(Change::DELETE_FOLDER, "server:ctr/one").ok());
}

TEST_F(OwnDiskTest, AFileInPiecesIsThereWithTheLastOne) {
  ASSERT_TRUE(Do(Change::MAKE_FOLDER, "server:ctr/one").ok());
  const std::string file = "server:ctr/one/manifest.json";
  ASSERT_TRUE(Put(file, "old", 0, true).ok());
  ASSERT_TRUE(Put(file, "abc", 0, false).ok());
  EXPECT_TRUE(absl::IsAborted(Put(file, "ghi", 6, true))) << "a piece is missing";
  EXPECT_EQ(Read(file)->content(), "old");
  ASSERT_TRUE(Put(file, "abc", 0, false).ok()) << "begun again";
  ASSERT_TRUE(Put(file, "def", 3, true).ok());
  EXPECT_EQ(Read(file)->content(), "abcdef");
  EXPECT_THAT(List("server:ctr/one"), testing::ElementsAre("manifest.json"));
}

TEST_F(OwnDiskTest, NoPathLeadsElsewhere) {
  ASSERT_TRUE(files_.WriteAtomically("/secret", "key").ok());
  ASSERT_TRUE(Do(Change::MAKE_FOLDER, "server:ctr/one").ok());
  for (const char* path : {"/secret", "server:../../secret", "server:ctr/../../../secret",
                           "server:/secret", "server:ctr/one/../../../../secret", ""}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Read(path).status())) << path;
    EXPECT_TRUE(absl::IsInvalidArgument(Put(path, "x", 0, true))) << path;
    for (const Change::Action action :
         {Change::MAKE_FOLDER, Change::DELETE, Change::DELETE_FOLDER}) {
      EXPECT_TRUE(absl::IsInvalidArgument(Do(action, path))) << path;
    }
  }
  ASSERT_TRUE(Put("server:ctr/one/a", "x", 0, true).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(Do(Change::DELETE, "server:ctr/one", {"a", "../../../../secret"})));
  EXPECT_EQ(*files_.ReadAll("/secret"), "key");
  EXPECT_EQ(Read("server:ctr/one/a")->content(), "x")
      << "nothing is deleted by a call with an error";
}

TEST_F(OwnDiskTest, AnAnswerHasALimit) {
  ASSERT_TRUE(Do(Change::MAKE_FOLDER, "server:ctr/one").ok());
  const std::string content(kOwnDiskReadBytesMax + 10, 'x');
  ASSERT_TRUE(Put("server:ctr/one/large", content, 0, true).ok());
  const auto reply = Read("server:ctr/one/large", 0, ~0u);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->content().size(), kOwnDiskReadBytesMax);
  EXPECT_EQ(reply->file_bytes(), content.size());
  EXPECT_EQ(Read("server:ctr/one/large", kOwnDiskReadBytesMax, ~0u)->content().size(), 10u);
}

TEST_F(OwnDiskTest, CallsAreAnsweredAndTheirMemoryComesBack) {
  const auto memory = std::make_shared<ChangeMemory>(8 << 20);
  OwnDisk disk("/data/checkpoints", memory, &files_);
  ASSERT_TRUE(Do(Change::MAKE_FOLDER, "server:ctr/one").ok());
  ASSERT_TRUE(Put("server:ctr/one/a", "content", 0, true).ok());
  v1::ReadFilesRequest request;
  request.set_path("server:ctr/one/a");
  request.set_bytes(100);
  absl::Notification came;
  v1::ReadFilesReply reply;
  std::shared_ptr<const void> kept;
  disk.Read(request, [&](absl::StatusOr<std::string> answer, std::shared_ptr<const void> held) {
    EXPECT_TRUE(answer.ok() && reply.ParseFromString(*answer));
    kept = std::move(held);
    came.Notify();
  });
  came.WaitForNotification();
  EXPECT_EQ(reply.content(), "content");
  disk.Stop();
  EXPECT_GT(memory->answer_bytes(), 0u);
  kept.reset();
  EXPECT_EQ(memory->answer_bytes(), 0u);
  absl::Status refused;
  disk.Read(request, [&](absl::StatusOr<std::string> answer, std::shared_ptr<const void>) {
    refused = answer.status();
  });
  EXPECT_TRUE(absl::IsUnavailable(refused)) << "it has stopped";
}

}  // namespace own_disk_test
}  // namespace hotbed
