"""The package as installed: its version and types, what importing it loads, and its documented names."""

import inspect
import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from typing import get_type_hints

import pytest

import torch_topk as tt


def test_types_are_shipped():
    assert files("torch_topk").joinpath("py.typed").is_file()


def test_version_is_the_installed_one():
    assert tt.__version__ == version("torch-topk")


# Whatever torch and TorchMetrics load for themselves, importing this package needs none of its extras, nor the
# heavy libraries that some users pass objects of: from here on each of them is missing.
IMPORT = """
import socket, sys

def refuse(*args, **kwargs):
    raise AssertionError("a connection was opened")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import torch, torchmetrics
for name in "lightning matplotlib omegaconf pandas rich scipy sklearn tabulate torch_geometric yaml".split():
    sys.modules[name] = None
import torch_topk
"""


def test_import_needs_no_extra_and_opens_no_connection():
    run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


DOCUMENTED = [
    name
    for name, value in ((name, getattr(tt, name)) for name in tt.__all__)
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_name_is_documented(name):
    assert (getattr(tt, name).__doc__ or "").strip()


def test_all_is_what_the_package_shows():
    shown = {name for name, value in vars(tt).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert shown <= set(tt.__all__)
    assert len(tt.__all__) == len(set(tt.__all__))


def written(owner):
    """Functions of a class or module that stand in the package's source, behind a property or not."""
    source = str(files("torch_topk"))
    for value in vars(owner).values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if inspect.isfunction(function) and function.__code__.co_filename.startswith(source):
            yield function


@pytest.mark.parametrize("name", [name for name in DOCUMENTED if not inspect.isroutine(getattr(tt, name))])
def test_annotations_resolve(name):
    # Configuration tools and run-time type checkers read them, LightningCLI among them.
    for function in written(getattr(tt, name)):
        assert "return" in get_type_hints(function), function
