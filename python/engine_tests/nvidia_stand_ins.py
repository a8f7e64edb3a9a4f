"""Makes stand-ins for the NVIDIA libraries that PyTorch links, so that it runs on a host without them.

PyTorch's package names libraries of CUDA, which the dynamic linker must find although an engine on the CPU never calls them.
They are some gigabytes. A stand-in has the functions that PyTorch names, each of which fails as on a host without a GPU.

    python nvidia_stand_ins.py TORCH_FOLDER OUT      then LD_LIBRARY_PATH=OUT

It needs gcc and readelf.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_LIBRARY = re.compile(r"lib(cu|nccl|nv)[A-Za-z_]*\.so")
_FUNCTION = re.compile(r"(cu[A-Z]|cu(da|blas|fft|rand|solver|sparse|dnn|file|pti)|nccl|nv[A-Z]|nvrtc|nvshmem|nvtx|__cuda)")
_NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE


@dataclass
class Wanted:
    """What a set of libraries needs of NVIDIA's."""

    libraries: set[str] = field(default_factory=set)
    owners: dict[str, str] = field(default_factory=dict)
    """The library that has a symbol version."""
    functions: dict[str, str] = field(default_factory=dict)
    """The symbol version of each function; empty if it has none."""

    def read(self, file: Path) -> set[str]:
        """Adds what a library needs. Returns the symbols that it defines."""
        self.libraries.update(
            name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("-d", file)) if _LIBRARY.match(name)
        )
        for library, versions in re.findall(r"File: (\S+)(.*(?:\n.*\bName: .*)*)", _readelf("-V", file)):
            if _LIBRARY.match(library):
                self.owners.update(dict.fromkeys(re.findall(r"\bName: (\S+)", versions), library))
        defined: set[str] = set()
        for line in _readelf("--dyn-syms", file).splitlines():
            columns = line.split()
            if len(columns) < 8 or columns[4] not in ("GLOBAL", "WEAK"):
                continue
            name, _, version = columns[7].partition("@")
            version = version.lstrip("@")
            if columns[6] != "UND":
                defined.add(name)
            elif version in self.owners or (not version and _FUNCTION.match(name)):
                self.functions[name] = version
        return defined


def wanted_by(files: Iterable[Path]) -> Wanted:
    """What the libraries need that they do not have themselves."""
    wanted, defined = Wanted(), set[str]()
    for file in files:
        defined |= wanted.read(file)
        wanted.libraries.discard(file.name)
    for name in defined:
        wanted.functions.pop(name, None)
    return wanted


def write(wanted: Wanted, out: Path) -> None:
    """Writes one library for each name. Functions without a version are in all of them, because nothing says whose they are."""
    versions: dict[str, list[str]] = defaultdict(list)
    for version, library in sorted(wanted.owners.items()):
        versions[library].append(version)
    out.mkdir(parents=True, exist_ok=True)
    for library in sorted(wanted.libraries):
        own = {name: version for name, version in sorted(wanted.functions.items()) if version in ("", *versions[library])}
        script = "".join(
            f"{version} {{ {' '.join(['global:', *(name + ';' for name in own if own[name] == version)])} }};\n"
            for version in versions[library]
        )
        _link(library, "".join(map(_definition, own)), script, out)


def _definition(function: str) -> str:
    if "String" in function or "ErrorName" in function:
        return f'const char* {function}(void) {{ return "no CUDA device"; }}\n'
    return f"long {function}(void) {{ return {_NO_DEVICE}; }}\n"


def _link(library: str, source: str, version_script: str, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        code, script = Path(folder) / "stand_in.c", Path(folder) / "versions"
        code.write_text(source)
        script.write_text(version_script)
        versions = [f"-Wl,--version-script={script}"] if version_script else []
        # -w: the compiler knows some of the names with other signatures.
        options = ["-w", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{library}", *versions]
        subprocess.run(["gcc", *options, "-o", str(out / library), str(code)], check=True)


def _readelf(what: str, file: Path) -> str:
    return subprocess.run(["readelf", "-W", what, file], capture_output=True, text=True, check=True).stdout


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: nvidia_stand_ins.py TORCH_FOLDER OUT")
    folder = Path(sys.argv[1]) / "lib"
    files = sorted(folder.glob("*.so*"))
    if not files:
        sys.exit(f"nvidia_stand_ins: {folder} has no shared libraries; it must be the folder lib of the package torch")
    wanted = wanted_by(files)
    write(wanted, Path(sys.argv[2]))
    print(f"stand-ins for {len(wanted.libraries)} NVIDIA libraries, {len(wanted.functions)} functions")


if __name__ == "__main__":
    main()
