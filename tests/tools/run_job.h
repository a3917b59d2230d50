// A program of the build under test: its descriptors, its output, and proof that nothing of it is
// left.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace unisono::tools_test {

inline std::string program(const std::string& name) {
  const char* const build = std::getenv("UNISONO_BUILD_DIR");
  return std::string(build == nullptr ? "." : build) + "/bin/" + name;
}

struct Outcome {
  int status = -1;  // exit status; -number if killed by a signal
  std::string out, err;

  std::vector<std::string> lines() const {
    std::vector<std::string> result;
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
  }
  // What rank `rank` wrote to standard output, without the prefixes.
  std::string of_rank(int rank) const {
    const std::string prefix = "[" + std::to_string(rank) + "] ";
    std::string text;
    for (const std::string& line : lines()) {
      if (line.rfind(prefix, 0) == 0) text += line.substr(prefix.size()) + "\n";
    }
    return text;
  }
  bool says(const std::string& words) const { return err.find(words) != std::string::npos; }
};

inline std::ostream& operator<<(std::ostream& stream, const Outcome& outcome) {
  return stream << "status " << outcome.status << "\nout:\n"
                << outcome.out << "err:\n"
                << outcome.err;
}

class RunningJob {
 public:
  // uni-run with these arguments; `input` is its standard input, then the end of the file comes,
  // unless `keep_input` holds it open.
  explicit RunningJob(const std::vector<std::string>& arguments, const std::string& input = "",
                      bool keep_input = false) {
    int in[2], out[2], err[2], life[2];
    EXPECT_EQ(0, pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC) + pipe2(err, O_CLOEXEC) +
                     pipe2(life, O_CLOEXEC));
    const std::string path = program("uni-run");
    std::vector<char*> argv{const_cast<char*>(path.c_str())};
    for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      (void)setpgid(0, 0);  // so that it can be killed as a shell's job is
      (void)dup2(in[0], 0);
      (void)dup2(out[1], 1);
      (void)dup2(err[1], 2);
      (void)fcntl(life[1], F_SETFD, 0);  // every process of the job inherits this end
      (void)execv(argv[0], argv.data());
      _exit(125);
    }
    (void)setpgid(pid_, pid_);
    for (const int fd : {in[0], out[1], err[1], life[1]}) (void)close(fd);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
    life_ = life[0];
    EXPECT_EQ(static_cast<ssize_t>(input.size()), ::write(in_, input.data(), input.size()));
    if (!keep_input) close_input();
  }
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;
  ~RunningJob() {
    if (pid_ > 0) {
      (void)kill(pid_, SIGKILL);
      (void)waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {in_, out_, err_, life_}) {
      if (fd >= 0) (void)close(fd);
    }
  }

  pid_t pid() const { return pid_; }
  void signal(int number) { ASSERT_EQ(0, kill(pid_, number)); }
  void close_input() { (void)close(std::exchange(in_, -1)); }
  void close_output() { (void)close(std::exchange(out_, -1)); }

  // Blocks until standard output has had `count` lines that hold `words`, since the start.
  void await(const std::string& words, size_t count) {
    while (occurrences(words) < count) ASSERT_TRUE(read_into(out_, &outcome_.out)) << outcome_;
  }

  const std::string& output() const { return outcome_.out; }  // standard output, as far as read

  // Blocks until the program has ended and all its output is read.
  Outcome wait() {
    bool out_open = out_ >= 0, err_open = true;
    while (out_open || err_open) {
      pollfd polls[] = {{out_open ? out_ : -1, POLLIN, 0}, {err_open ? err_ : -1, POLLIN, 0}};
      if (poll(polls, 2, -1) < 0) continue;
      if (polls[0].revents != 0) out_open = read_into(out_, &outcome_.out);
      if (polls[1].revents != 0) err_open = read_into(err_, &outcome_.err);
    }
    int status = 0;
    EXPECT_EQ(pid_, waitpid(pid_, &status, 0));
    pid_ = -1;
    outcome_.status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return outcome_;
  }
  // Blocks until no process of the job is left: then nobody holds the other end.
  void await_nobody() {
    std::string nothing;
    while (read_into(life_, &nothing)) {
    }
  }

 private:
  static bool read_into(int fd, std::string* text) {
    std::array<char, 4096> bytes;
    const ssize_t got = read(fd, bytes.data(), bytes.size());
    if (got > 0) text->append(bytes.data(), static_cast<size_t>(got));
    return got > 0;
  }
  size_t occurrences(const std::string& words) const {
    size_t count = 0;
    for (size_t at = outcome_.out.find(words); at != std::string::npos;
         at = outcome_.out.find(words, at + words.size())) {
      ++count;
    }
    return count;
  }

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1, life_ = -1;
  Outcome outcome_;
};

inline Outcome uni_run(const std::vector<std::string>& arguments, const std::string& input = "") {
  return RunningJob(arguments, input).wait();
}
// uni-run -n `ranks` sh -c `script`.
inline std::vector<std::string> shell(int ranks, const std::string& script,
                                      std::vector<std::string> options = {}) {
  std::vector<std::string> words{"-n", std::to_string(ranks)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"sh", "-c", script});
  return words;
}

class UniRun : public testing::Test {
 protected:
  void SetUp() override {
    if (access(program("uni-run").c_str(), X_OK) != 0) GTEST_SKIP() << "uni-run was not built";
  }
};

}  // namespace unisono::tools_test
