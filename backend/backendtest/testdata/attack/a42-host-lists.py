# id: A42
# tries: to read lists of the host's file systems and buses, which keep other processes from making files and wake devices, and long lists, whose reads no signal ends
# expect[ns] lists: hidden
# expect[L1] lists: EACCES|hidden
# expect[ns] symbols: hidden
# expect[L1] symbols: EACCES|hidden
# bare lists: shown
# bare symbols: shown
import os
from attempt import attempt


def lists():
    return "shown" if any(os.listdir(d) for d in ("/proc/fs", "/proc/bus", "/proc/spl", "/proc/sysvipc") if os.path.exists(d)) else "hidden"


def symbols():
    if not os.path.exists("/proc/kallsyms"):
        return "hidden"
    with open("/proc/kallsyms") as f:
        return "shown" if f.read(1) else "hidden"


attempt("lists", lists)
attempt("symbols", symbols)
