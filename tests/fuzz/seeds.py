"""Writes the inputs of tests/fuzz/corpus and value-corpus that people thought of. See fuzzed.hpp for what the
numbers mean."""
import pathlib
import struct

SUPERBLOCK, COPY, RECORD, MOVED, OVERWRITTEN, SUM_KEPT, SIZE = range(7)
VERSION, BLOCK_BYTES, SLOTS, SLOTS_PER_FILE, GENERATION, OPEN_SLOTS, DIRECTORIES = 0, 1, 2, 3, 4, 9, 10
PARENT, NAMESPACE, DEPTH, CHECKSUM, RECORD_GENERATION, FLAGS, SLOT = 4, 8, 9, 10, 12, 13, 14
CONFIGURED = 3
LAST = 2**64 - 1

SEEDS = {
    "slots-as-many-as-can-be": [(SUPERBLOCK, SLOTS, 0, 0xFFFFFFFE)],
    "slots-many-and-made-smaller": [(SUPERBLOCK, SLOTS, 0, 0xFFFFFFFE), (SUPERBLOCK, OPEN_SLOTS, 0, 1)],
    "slots-kept": [(SUPERBLOCK, SLOTS, 0, 32 * 40), (SUPERBLOCK, OPEN_SLOTS, 0, 40)],
    "open-beyond-32-bits": [(SUPERBLOCK, OPEN_SLOTS, 0, 2**32)],
    "blocks-of-4-gib": [(SUPERBLOCK, BLOCK_BYTES, 0, 4294963200)],
    "file-of-one-slot": [(SUPERBLOCK, SLOTS_PER_FILE, 0, 1)],
    "opened-for-the-last-time": [(SUPERBLOCK, GENERATION, 0, LAST)],
    "generation-last": [(RECORD, 0, RECORD_GENERATION, LAST), (RECORD, 1, RECORD_GENERATION, LAST - 1)],
    "striped-alone": [(SUPERBLOCK, VERSION, 0, 2), (SUPERBLOCK, DIRECTORIES, 0, 1)],
    "striped-over-two": [(SUPERBLOCK, VERSION, 0, 2), (SUPERBLOCK, DIRECTORIES, 0, 2 | 2 << 32), (COPY, VERSION, 0, 2)],
    "version-unknown": [(SUPERBLOCK, VERSION, 0, 3)],
    "superblock-zeroed": [(OVERWRITTEN, 0, 0, 0)],
    "copy-torn": [(OVERWRITTEN, 1, 0xA5, 0)],
    "both-zeroed": [(OVERWRITTEN, 2, 0, 0)],
    "both-overwritten": [(OVERWRITTEN, 2, 0xA5, 0)],
    "copy-of-another-size": [(OVERWRITTEN, 0, 0, 0), (COPY, SLOTS, 0, 0xFFFFFFFE)],
    "superblock-of-a-wrong-sum": [(SUM_KEPT, 0, 0, 0), (SUPERBLOCK, SLOTS, 0, 41)],
    "record-of-a-wrong-sum": [(SUM_KEPT, 2, 1, 0), (RECORD, 1, CHECKSUM, 1)],
    "record-of-a-depth-beyond-all": [(RECORD, 3, DEPTH, 0xFFFFFFFF | 8192 << 32)],
    "record-of-another-slot": [(MOVED, 1, 30, 0)],
    "record-twice": [(MOVED, 1, 30, 1), (RECORD, 30, RECORD_GENERATION, LAST)],
    "record-of-another-group": [(RECORD, 2, FLAGS, 1 | 0xFFFF << 16)],
    "catalog-short": [(SIZE, 0, 0, 5000)],
    "catalog-empty": [(SIZE, 0, 0, 0)],
    "catalog-long": [(SIZE, 0, 0, 2**20 - 1)],
    "data-short": [(SIZE, 1, 0, 5 * 8192 + 1)],
    "lock-without-a-copy": [(SIZE, 2, 0, 512)],
    "made-smaller": [(SIZE, CONFIGURED, 0, 6)],
    "made-larger": [(SIZE, CONFIGURED, 0, 98), (SUPERBLOCK, SLOTS, 0, 20)],
}

corpus = pathlib.Path(__file__).parent / "corpus"
corpus.mkdir(exist_ok=True)
for name, changes in SEEDS.items():
    (corpus / name).write_bytes(b"".join(struct.pack("<BBBQ", *change) for change in changes))

FLIPPED, RESIZED, MIXED, SWAPPED, REMOVED, RAW = range(6)
SEALED, TWO_VALUES, CORRECTED, BYTE_BY_BYTE = 1, 2, 4, 8
OTHER_WRITE, OTHER_KEY, OTHER_FINGERPRINT, OTHER_SECRET = range(4)
HEADER = 128

VALUES = {
    "good": (0, []),
    "good-sealed-in-two": (SEALED | TWO_VALUES | BYTE_BY_BYTE, []),
    "magic": (CORRECTED, [(FLIPPED, 0, 0, 1)]),
    "version": (CORRECTED, [(FLIPPED, 0, 4, 2)]),
    "flag-of-the-seal": (CORRECTED, [(FLIPPED, 0, 5, 1)]),
    "flag-unknown": (SEALED, [(FLIPPED, 0, 5, 0x80)]),
    "part": (TWO_VALUES | CORRECTED, [(FLIPPED, 1, 6, 1)]),
    "group-and-depth": (CORRECTED, [(FLIPPED, 0, 8, 1), (FLIPPED, 0, 12, 0xFFFFFFFF)]),
    "length": (CORRECTED, [(FLIPPED, 0, 16, 8)]),
    "write-id": (CORRECTED, [(FLIPPED, 0, 20, 1)]),
    "write-id-of-one-of-two": (TWO_VALUES | CORRECTED, [(FLIPPED, 1, 20, 1)]),
    "nonce": (SEALED, [(FLIPPED, 0, 31, 1 << 24)]),
    "key": (CORRECTED, [(FLIPPED, 0, 79, 1)]),
    "tag": (SEALED, [(FLIPPED, 0, 127, 0x80)]),
    "payload": (0, [(FLIPPED, 0, HEADER, 1)]),
    "payload-sealed": (SEALED | TWO_VALUES, [(FLIPPED, 1, HEADER, 1)]),
    "header-cut": (0, [(RESIZED, 0, 0, HEADER - 1)]),
    "payload-cut": (TWO_VALUES | CORRECTED, [(RESIZED, 0, 0, HEADER + 1000)]),
    "longer": (SEALED, [(RESIZED, 0, 0, 1000)]),
    "of-another-write": (TWO_VALUES, [(MIXED, 0, 0, OTHER_WRITE)]),
    "payload-of-another-block": (0, [(MIXED, 0, HEADER, OTHER_KEY)]),
    "of-another-fingerprint": (SEALED, [(MIXED, 0, 0, OTHER_FINGERPRINT)]),
    "of-another-secret": (SEALED, [(MIXED, 0, 0, OTHER_SECRET)]),
    "swapped": (TWO_VALUES, [(SWAPPED, 0, 0, 0)]),
    "second-gone": (TWO_VALUES, [(REMOVED, 1, 0, 0)]),
    "any-bytes": (0, [(RAW, 0, 0, 0), (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)]),
}

corpus = pathlib.Path(__file__).parent / "value-corpus"
corpus.mkdir(exist_ok=True)
for name, (flags, changes) in VALUES.items():
    (corpus / name).write_bytes(bytes([flags]) + b"".join(struct.pack("<BBHI", *change) for change in changes))
