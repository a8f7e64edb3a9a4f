#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace terrace {

/// Asks the kernel to take the pages of `bytes` from the memory of this node while it has free memory, and then from other nodes.
/// `bytes` must begin at a page boundary, and none of its pages may be present yet. Returns false if the kernel or the container
/// does not allow this. The implementation uses system calls, because nothing else of libnuma is needed.
[[nodiscard]] bool prefer_node(std::span<std::byte> bytes, unsigned node);

/// Returns the share of pages that lie on the node, from a sample of the pages that are present. Returns nothing if the kernel
/// does not report it.
[[nodiscard]] std::optional<double> share_on_node(std::span<std::byte> bytes, unsigned node);

}  // namespace terrace
