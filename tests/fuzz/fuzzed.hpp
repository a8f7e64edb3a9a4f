#pragma once

#include <string_view>

/// The functions that the fuzzer, and the replay of each corpus, call with an input (README.md). Each ends the process if an
/// answer is wrong.
namespace terrace::test {

/// Routes a request of the admin endpoint: "METHOD TARGET", and after the first line end the body. Wrong is an exception, a body
/// that is no JSON, an error without one sentence, or a command from what is no POST.
void run_admin_request(std::string_view text);

/// Reads the text as a configuration. Wrong is an exception that is no ConfigError, a message of several lines, or values that,
/// set again as flags, give other values.
void run_config_text(std::string_view text);

/// Gives the bytes to a client of the Redis protocol as the answers of a server to three commands: one whose payload lands, one
/// that is kept whole, and one that nobody wants. It is wrong if the outcome depends on how the bytes arrive, if more lands than
/// there is room for, or if a map or a redirection that is read from them is none.
void run_redis_replies(std::string_view bytes);

/// Builds a store whose superblock, copy and catalog are those of a good store with the changes of `input`. It starts the store,
/// uses it, reads it from outside, and starts it again with holes in place of its free slots. Checksums are corrected after the
/// changes, so that the code behind them is reached. Wrong is a block with wrong bytes, more disk space than configured, a broken
/// invariant, or a reader that disagrees with a store.
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
void run_crafted_store(std::string_view input);

/// Makes the values of a block of a shared store, changes them as `input` says, and reads them. Wrong is a block with other
/// bytes.
///
/// Byte 0: bit 0, values are sealed; bit 1, the block is two values; bit 2, the checksum of each header is corrected after the
/// changes, so that the code behind it is reached; bit 3, the payload comes byte by byte. Without a seal, the checksum of a
/// payload is not changed. The rest is a list of changes of 8 bytes each; a shorter rest is ignored:
///
///     byte 0        which change: remainder by 6 (see ValueChange)
///     byte 1        the part
///     bytes 2, 3    an offset, remainder by the size of the value
///     bytes 4..7    a number
///
/// An input without changes is the good block.
enum class ValueChange : unsigned char {
  flipped,  ///< XORs the number to the four bytes at the offset
  resized,  ///< gives the value the number as its size, remainder by twice its size and one
  mixed,    ///< copies the value of another write, block, fingerprint or secret, by the number, from the offset on
  swapped,  ///< exchanges the parts
  removed,  ///< the engine does not have the part
  raw,      ///< writes the rest of the input to the offset; no further changes
};
void run_shared_values(std::string_view input);

}  // namespace terrace::test
