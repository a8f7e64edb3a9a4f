#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::test {

/// Makes the values of a block of a shared store, changes them as `input` says, and reads them. Ends the process if a wrong block
/// is served.
///
/// Byte 0: bit 0, values are sealed; bit 1, the block is two values; bit 2, the checksum of each header is corrected after the
/// changes, so that the code behind it is reached; bit 3, the payload comes byte by byte. Without a seal, the checksum of a
/// payload is not changed. The rest is a list of changes of 8
/// bytes each; a shorter rest is ignored:
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
void run_shared_values(std::span<const std::byte> input);

}  // namespace terrace::test
