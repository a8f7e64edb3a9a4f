"""Lets files that were linked with GCC 12 run with the libstdc++ of GCC 11: python3 cmake/older_libstdcxx.py FILE...

std::condition_variable::wait has two versions in libstdc++ of one function. A linker takes the newer one, GLIBCXX_3.4.30, which
RHEL 9 and Amazon Linux 2023 lack. If a file asks for nothing else of that version, it asks for the older one afterwards.
"""

from __future__ import annotations

import struct
import sys

from elftools.elf.elffile import ELFFile

NEWER, OLDER = "GLIBCXX_3.4.30", "GLIBCXX_3.4.11"
WAIT = "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"

for path in sys.argv[1:]:
    with open(path, "r+b") as file:
        elf = ELFFile(file)
        needs = elf.get_section_by_name(".gnu.version_r")
        found = {}
        library = needs["sh_offset"]
        for need, versions in needs.iter_versions():
            at = library + need["vn_aux"]
            for version in versions:
                found[version.name] = at, version
                at += version["vna_next"]
            library += need["vn_next"]
        if NEWER not in found or OLDER not in found:
            continue
        at, newer = found[NEWER]
        older = found[OLDER][1]
        of = elf.get_section_by_name(".gnu.version")
        symbols = enumerate(elf.get_section_by_name(".dynsym").iter_symbols())
        if {symbol.name for number, symbol in symbols if of.get_symbol(number)["ndx"] == newer["vna_other"]} == {WAIT}:
            for offset, field in ((0, "vna_hash"), (8, "vna_name")):
                file.seek(at + offset)
                file.write(struct.pack("<I", older[field]))
