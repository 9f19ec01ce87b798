# id: A42
# tries: to read lists of the host's file systems and buses, which keep other processes from making files and wake devices
# expect[ns] lists: hidden
# expect[L1] lists: EACCES|hidden
# bare lists: shown
import os
from attempt import attempt


def lists():
    return "shown" if any(os.listdir(d) for d in ("/proc/fs", "/proc/bus", "/proc/spl") if os.path.exists(d)) else "hidden"


attempt("lists", lists)
