// tests/places/s3_server.py as a child process.
#ifndef HOTBED_TESTS_PLACES_S3_SERVER_PROCESS_H_
#define HOTBED_TESTS_PLACES_S3_SERVER_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "places/s3_place.h"

namespace hotbed {

class S3ServerProcess {
 public:
  explicit S3ServerProcess(const std::string& arguments = "") {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", absl::StrCat("exec " HOTBED_S3_SERVER " ", arguments).c_str(),
            nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    keeps_it_ = in[1];
    FILE* const said = fdopen(out[0], "r");
    EXPECT_EQ(fscanf(said, "%d", &port_), 1) << "the object store did not begin";
    fclose(said);
  }
  ~S3ServerProcess() {
    close(keeps_it_);  // its standard input ends
    waitpid(pid_, nullptr, 0);
  }

  S3Options options() const {
    S3Options options;
    options.endpoint = absl::StrCat("http://127.0.0.1:", port_);
    options.access_key = "test-key";
    options.secret_key = "test/secret+key";
    options.session_token = "test token";
    return options;
  }

 private:
  pid_t pid_ = 0;
  int keeps_it_ = -1;
  int port_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLACES_S3_SERVER_PROCESS_H_
