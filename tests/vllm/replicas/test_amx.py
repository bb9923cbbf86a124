"""On processors with AMX each of vLLM's processes has asked for its tiles."""

import subprocess
import sys

# ARCH_GET_XCOMP_SUPP, ARCH_GET_XCOMP_PERM: what is there, what is permitted; bit 18 is tile data.
ASK = """
import ctypes
from replicas.workarounds.amx import permit

def tiles(what):
    found = ctypes.c_ulong(0)
    failed = ctypes.CDLL(None).syscall(158, what, ctypes.byref(found))
    return not failed and bool(found.value >> 18 & 1)

there, before = tiles(0x1021), tiles(0x1022)
permit()
print(there, before, tiles(0x1022))
"""


def test_tiles_are_permitted_where_they_are_there():
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    there, before, after = done.stdout.split()
    assert (before, after) == ("False", there)
