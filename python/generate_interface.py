"""Writes terrace_kv/_interface.py, the ctypes mirror of the C interface: `python3 python/generate_interface.py`.

It reads include/terrace.h, which is written so that this is easy: each structure is a typedef with its name, each function begins
with TERRACE_C_API, and constants have their values. test_interface.py fails if the file is not what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path

HEADER = Path(__file__).parent.parent / "include" / "terrace.h"
OUTPUT = Path(__file__).parent / "terrace_kv" / "_interface.py"
SCALARS = {"size_t": "c_size_t", "int": "c_int", "terrace_status": "c_int32"} | {
    f"{sign}int{bits}_t": f"c_{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
# Addresses of arrays are passed as numbers, so pointers to these are c_void_p. The library's own arrays are indexed.
INDEXED_FIELDS = {"statuses"}


def python_name(of_c: str) -> str:
    return "".join(part.capitalize() for part in of_c.removeprefix("terrace_").split("_"))


def declaration(text: str) -> tuple[str, str]:
    """Splits `const char* name` into the type and the name."""
    plain = re.sub(r"\bconst\b", "", text).split()
    found = re.fullmatch(r"(\w+\**) ?(\w*)(\[\d+\])?", " ".join(plain).replace("* *", "**").replace(" *", "*"))
    assert found is not None, text
    return found[1] + (found[3] or ""), found[2]


def of_c_type(kind: str, structures: set[str], *, indexed: bool = False) -> str:
    """The ctypes expression for a type of C."""
    base, array, length = kind.partition("[")
    name, stars = base.rstrip("*"), base.count("*")
    if array:
        return f"{SCALARS[name]} * {length[:-1]}"
    if stars == 0:
        return SCALARS.get(name) or ("LogFunction" if name == "terrace_log_function" else python_name(name))
    if name == "char":
        inner = "c_char_p"
    elif name in structures and (name != "terrace_key" or stars > 1):
        inner = f"POINTER({python_name(name)})"
    elif name in SCALARS and (stars > 1 or indexed):
        inner = f"POINTER({SCALARS[name]})"
    else:
        inner = "c_void_p"  # memory, keys, a handle, or an array of these
    return f"POINTER({inner})" if stars > 1 and name != "void" else inner


def generate() -> str:
    text = re.sub(r"//.*", "", HEADER.read_text()).replace("const void*", "const char*")  # both are given as bytes
    structs = re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.DOTALL)
    names = {name for name, _ in structs}
    lines = [
        '"""The C interface by ctypes. Generated from include/terrace.h by generate_interface.py: do not edit."""',
        "",
        "import ctypes",
        "from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p",
        "from typing import Any",
        "",
        "from ._structures import Checked, Sized",
        "",
    ]
    for name, value in re.findall(r"TERRACE_(\w+) = (\w+)", text):
        lines.append(f"{name} = {value}")
    lines += ["", "LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_void_p, c_size_t)", ""]
    for name, body in structs:
        fields = [declaration(field) for field in body.split(";") if field.strip()]
        lines += ["", f"class {python_name(name)}({'Sized' if fields[0][1] == 'struct_size' else 'Checked'}):", "    _fields_ = ["]
        for kind, field in fields:
            lines.append(f'        ("{field}", {of_c_type(kind, names, indexed=field in INDEXED_FIELDS)}),')
        lines += ["    ]", ""]
    lines += ["", "FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {"]
    for result, name, arguments in re.findall(r"TERRACE_C_API ((?:const )?\w+\*?) (\w+)\((.*?)\);", text, re.DOTALL):
        returned = "None" if result == "void" else of_c_type(declaration(result)[0], names)
        taken = [] if arguments == "void" else [declaration(" ".join(each.split()))[0] for each in arguments.split(",")]
        listed = ", ".join(of_c_type(kind, names) for kind in taken)
        lines.append(f'    "{name}": ({returned}, [{listed}]),')
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    OUTPUT.write_text(generate())
