// Crew: what one supervisor starts and ends together: the ranks of this host, or one ssh a host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/uni_run/environment.h"
#include "tools/uni_run/options.h"
#include "tools/uni_run/process.h"

namespace unisono::uni_run {

class Crew {
 public:
  virtual ~Crew() = default;
  virtual int size() const = 0;
  // What to start as the `number`-th, from 0.
  virtual Result<RankSpec> spec(int number) = 0;
  virtual std::string prefix(int number) const = 0;  // before each of its lines
  virtual std::string name(int number) const = 0;    // "rank 3"
  virtual std::string names(const std::vector<int>& ascending) const = 0;  // "ranks 0-2, 5"
  virtual const char* plural() const = 0;                                  // "ranks"
  // Whether it says itself how its members ended.
  virtual bool reports_itself() const = 0;
  // Whether the first one's input pipe takes what we read from the terminal.
  virtual bool takes_input() const = 0;
  // The `number`-th runs; `process` is valid until finished(number).
  virtual void started(int number, const Spawned& process) {
    (void)number;
    (void)process;
  }
  virtual void finished(int number) { (void)number; }
  // A line of its standard output; true: it was for us and is not passed on.
  virtual bool heard(int number, std::string_view line) {
    (void)number;
    (void)line;
    return false;
  }
};

class LocalCrew : public Crew {
 public:
  // Both outlive it. `input`: whose rank 0 reads ours.
  LocalCrew(const Options& options, const Job& job, Input input)
      : options_(options), job_(job), input_(input) {}
  int size() const override { return options_.ranks; }
  Result<RankSpec> spec(int number) override;
  std::string prefix(int number) const override;
  std::string name(int number) const override;
  std::string names(const std::vector<int>& ascending) const override;
  const char* plural() const override { return "ranks"; }
  bool reports_itself() const override { return false; }
  bool takes_input() const override { return input_ == Input::kPiped; }

 private:
  const Options& options_;
  const Job& job_;
  const Input input_;
  std::vector<int> allowed_;  // cores
};

}  // namespace unisono::uni_run
