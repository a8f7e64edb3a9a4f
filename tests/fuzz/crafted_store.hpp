#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::test {

/// Builds a store whose superblock, copy and catalog are what `input` makes of those of a good store. Starts it, serves from it,
/// reads it from outside, and starts it without the room of its free slots. Checksums are made right after the changes, so that
/// what is behind them is reached.
/// Ends the process where an answer is wrong: a block of other bytes, more of the disk than was configured, an invariant that
/// does not hold, or a reader that disagrees with a store.
///
/// The input is a list of changes of 11 bytes each; a rest that is shorter is left out:
///
///     byte 0        what: its remainder by 7 (see Change)
///     byte 1, 2     two arguments, a and b
///     bytes 3..10   a number, little-endian
///
/// The empty input is the good store.
enum class Change : unsigned char {
  superblock_word,  ///< the number becomes the superblock's word a (of eight bytes; the magic is not changed)
  copy_word,        ///< the same, of the copy
  record_word,      ///< the number becomes word b of the record in slot a
  record_moved,     ///< the record of slot a is copied to slot b, and says so where the number is odd
  overwritten,      ///< a: the first page, the copy, or both are filled with the byte b
  sum_kept,         ///< a: the checksum of superblock, copy or record b is not made right
  size,             ///< a: catalog, data or lock file get the number as their size, below a bound; or the configuration as slots
};
void run_crafted_store(std::span<const std::byte> input);

}  // namespace terrace::test
