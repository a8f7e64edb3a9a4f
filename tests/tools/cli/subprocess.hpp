#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace terrace::test {

struct Ended {
  int status = 0;  ///< exit status; 128 + n if signal n ended it
  std::string out;
  std::string err;
};

/// Runs a program to its end.
[[nodiscard]] Ended run(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment = {});

/// A program whose standard error is a terminal, so that it shows its progress. If it still runs, the destructor kills it.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& words, unsigned short columns = 80);
  ~OnTerminal();
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  /// Blocks until the terminal has shown `text`. Returns false if the program ended before.
  [[nodiscard]] bool wait_for(const std::string& text);
  void signal(int number) const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits for the end of the program; `err` is everything that the terminal has shown.
  [[nodiscard]] Ended wait();

 private:
  /// Returns false at the end.
  bool read_more();

  pid_t pid_ = -1;
  int terminal_ = -1;
  int out_ = -1;
  std::string shown_;
};

}  // namespace terrace::test
