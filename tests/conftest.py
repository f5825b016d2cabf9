"""Settings that every test runs under."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")  # before matplotlib is imported: the tests draw on no screen

import torch
from hypothesis import HealthCheck, settings

# The tests' tensors are small: more threads would only wait for each other, and for other processes.
torch.set_num_threads(1)

# A time limit for one example would fail on a busy machine, and says nothing about the result.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples on every run, so that a commit passes or fails for what it holds.
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
