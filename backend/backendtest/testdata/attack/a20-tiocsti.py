# id: A20
# tries: to type into a terminal, also with bits above 32 that a filter may not look at
# expect sti: EPERM
# expect linux: EPERM
# expect cons: EPERM
# expect ctty: EPERM
# expect high: EPERM
# expect high-linux: EPERM
# expect harmless: ENOTTY
# bare sti: ENOTTY
# bare high: ENOTTY
from attempt import *

b = ctypes.create_string_buffer(b"x")
attempt("sti", lambda: call("ioctl", 0, 0x5412, ctypes.byref(b)))
attempt("linux", lambda: call("ioctl", 0, 0x541C, ctypes.byref(b)))
attempt("cons", lambda: call("ioctl", 0, 0x541D, 0))
attempt("ctty", lambda: call("ioctl", 0, 0x540E, 0))
attempt("high", lambda: call("ioctl", 0, 0x5412 | 1 << 32, ctypes.byref(b)))
attempt("high-linux", lambda: call("ioctl", 0, 0x541C | 1 << 40, ctypes.byref(b)))
attempt("harmless", lambda: call("ioctl", 0, 0x5401, ctypes.byref(ctypes.create_string_buffer(64))))
