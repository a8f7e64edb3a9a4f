#pragma once

namespace terrace {

/// Whether to ask the kernel for huge pages. Do not ask for memory of which only a little may be used: the first access to a huge
/// page allocates all of it.
enum class HugePages : bool { no, yes };

}  // namespace terrace
