"""The ctypes mirror of the C interface is what its generator writes."""

import importlib.util
from pathlib import Path

import pytest

GENERATOR = Path(__file__).parent.parent / "generate_interface.py"


def test_the_mirror_is_generated_from_the_header() -> None:
    if not GENERATOR.exists():
        pytest.skip("these are the tests of an installed package: its generator and header are not here")
    specification = importlib.util.spec_from_file_location("generate_interface", GENERATOR)
    assert specification is not None and specification.loader is not None
    generator = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generator)
    assert generator.OUTPUT.read_text() == generator.generate(), "run python3 python/generate_interface.py"
