"""What a replica says of its start, and who can read it."""

import gc
import importlib
import json
import pickle

import pytest

from replicas.workarounds.core_process import RunEngineCore


def test_what_is_absent_is_not_found_before_enginecore_runs_and_found_then() -> None:
    there, absent = "json", "wsgiref.validate"  # a module that is imported stays what it is
    sent = pickle.dumps(RunEngineCore((there, absent)))
    try:
        run = pickle.loads(sent)
        with pytest.raises(ImportError):
            importlib.import_module(absent)
        assert importlib.import_module(there) is json
        run.ends()
        assert importlib.import_module(absent).__name__ == absent
    finally:
        gc.unfreeze()
        gc.enable()
