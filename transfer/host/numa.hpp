#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace terrace {

/// Asks that the pages of `bytes`, which begins at a page and has none yet, come from the memory of this node, as long as it has
/// any; then from others: memory that is a little further away beats none. False where the kernel, or the container, does
/// not let us. By system calls, since that is all of libnuma that is needed.
[[nodiscard]] bool prefer_node(std::span<std::byte> bytes, unsigned node);

/// The share of pages that lie on the node, of a sample of those that are there. Nothing where the kernel does not say.
[[nodiscard]] std::optional<double> share_on_node(std::span<std::byte> bytes, unsigned node);

}  // namespace terrace
