"""Tools of the sandbox for the code in it.

bridge      a mapping of values that are exchanged with other sessions
display     shows values in their richest forms
policy      what this sandbox allows
"""
import json as _json
import os as _os
import re as _re
from collections.abc import MutableMapping as _MutableMapping

__all__ = ["bridge", "display", "policy"]

_IN = _os.environ.get("SANDBOX_BRIDGE_DIR") or "/run/bridge"
_WORK = _os.environ.get("SANDBOX_OUTPUT_DIR") or "/mnt/data"
_OUT = _WORK + "/.bridge"
_KEY = _re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")


class Bridge(_MutableMapping):
    """Values by key: those that this session has assigned, and those that came from other sessions.

    Values must be representable in JSON. An assigned value can be passed to other
    sessions, and hides a value with the same key that came from one.
    """

    def __getitem__(self, key):
        if isinstance(key, str) and _KEY.match(key):
            for place in _OUT, _IN:
                try:
                    with open("%s/%s.json" % (place, key), encoding="utf-8") as file:
                        return _json.load(file)
                except (FileNotFoundError, NotADirectoryError):
                    pass
        raise KeyError(key)

    def __setitem__(self, key, value):
        if not isinstance(key, str):
            raise TypeError("a key of the bridge is a string, not %s" % type(key).__name__)
        if not _KEY.match(key):
            raise ValueError("a key of the bridge has letters, digits, _, - and . only, at most 128: %r" % key)
        text = _json.dumps(value, ensure_ascii=False, allow_nan=False)
        _os.makedirs(_OUT, exist_ok=True)
        name = "%s/.%s.%d.%s" % (_OUT, key[:64], _os.getpid(), _os.urandom(4).hex())
        try:
            with open(name, "x", encoding="utf-8") as file:
                file.write(text)
            _os.replace(name, "%s/%s.json" % (_OUT, key))
        except BaseException:
            try:
                _os.unlink(name)
            except OSError:
                pass
            raise

    def __delitem__(self, key):
        self[key]
        try:
            _os.unlink("%s/%s.json" % (_OUT, key))
        except FileNotFoundError:
            raise PermissionError("%r was put in from outside and can only be read" % key) from None

    def __iter__(self):
        seen = set()
        for place in _OUT, _IN:
            try:
                names = sorted(_os.listdir(place))
            except OSError:
                continue
            for name in names:
                key = name[:-5]
                if name.endswith(".json") and _KEY.match(key) and key not in seen:
                    seen.add(key)
                    yield key

    def __len__(self):
        return sum(1 for _ in self)

    def __repr__(self):
        return "<bridge with %s>" % (", ".join(self) or "nothing")


def _policy():
    found = {"network": "none", "writable": [_WORK, "/tmp"]}
    for read in (lambda: open("/run/bridge-policy", encoding="utf-8").read(), lambda: _os.environ["SANDBOX_POLICY"]):
        try:
            told = _json.loads(read())
        except (OSError, KeyError, ValueError):
            continue
        if isinstance(told, dict):
            found.update(told)
            break
    return found


bridge = Bridge()
policy = _policy()
