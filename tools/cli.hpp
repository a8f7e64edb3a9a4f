#pragma once

// The parser of command lines (CLI11), for headers: its own headers take long to compile.
namespace CLI {
class App;
class Option;
}  // namespace CLI
