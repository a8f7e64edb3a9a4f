#pragma once

#include "lab/storage/storage_subjects.hpp"

#include <filesystem>
#include <memory>

namespace terrace::tools {

/// The baseline: direct reads and writes of the file, as a program issues them that does nothing else. It uses io_uring without
/// registered memory or files if io_uring is available; otherwise pread and pwrite, with a thread for each operation under way.
/// Makes the files to write, with all their blocks. Throws std::system_error.
[[nodiscard]] std::unique_ptr<StorageSubject> make_plain_subject(StorageGround& ground, const StorageFiles& files);

}  // namespace terrace::tools
