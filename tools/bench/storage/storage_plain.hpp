#pragma once

#include "tools/bench/storage/storage_subjects.hpp"

#include <filesystem>
#include <memory>

namespace terrace::tools {

/// The yardstick: direct reads and writes of the file as a program would issue them that does nothing else. With io_uring where
/// there is any, nothing registered; else with pread and pwrite, a thread for each that is to be under way. Makes the
/// files to write, with all their blocks. Throws std::system_error.
[[nodiscard]] std::unique_ptr<StorageSubject> make_plain_subject(StorageGround& ground, const StorageFiles& files);

}  // namespace terrace::tools
