# Follows checker.py in the driver of a run, which calls refused() before it opens the program.
from _warnings import filters


def refused(code):
    """The issues for which a program is not run, as JSON, or None. Without this check it warns of its own syntax itself."""
    quiet = "ignore", None, Warning, None, 0
    filters.insert(0, quiet)
    try:
        issues, _, _ = found(code, False)
    finally:
        filters.remove(quiet)
    issues = [i for i in issues if i[2] == "error" or i[2] == "warning" and i[3] not in DISABLED]
    return encode(issues[:50]) if issues else None
