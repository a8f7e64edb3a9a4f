#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::test {

/// Builds a store whose superblock, copy and catalog are those of a good store with the changes of `input`. It starts the store,
/// uses it, reads it from outside, and starts it again with holes in place of its free slots. Checksums are corrected after the
/// changes, so that the code behind them is reached.
///
/// Ends the process if an answer is wrong: a block with wrong bytes, more disk space than configured, a broken invariant, or a
/// reader that disagrees with a store.
///
/// The input is a list of changes of 11 bytes each; a shorter rest is ignored:
///
///     byte 0        which change: remainder by 7 (see Change)
///     byte 1, 2     two arguments, a and b
///     bytes 3..10   a number, little-endian
///
/// An empty input is the good store.
enum class Change : unsigned char {
  superblock_word,  ///< writes the number to word a of the superblock (words of eight bytes; the magic does not change)
  copy_word,        ///< the same for the copy
  record_word,      ///< writes the number to word b of the record in slot a
  record_moved,     ///< copies the record of slot a to slot b; if the number is odd, the record also names slot b
  overwritten,      ///< a: fills the first page, the copy, or both with the byte b
  sum_kept,         ///< a: does not correct the checksum of superblock, copy or record b
  /// a: sets the size of catalog, data or lock file to the number, up to a limit, or the number of slots in the configuration.
  size,
};
void run_crafted_store(std::span<const std::byte> input);

}  // namespace terrace::test
