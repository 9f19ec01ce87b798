# id: A14
# tries: to open the host's root by its inode number
# expect to-handle: EPERM
# expect by-handle: EPERM
from attempt import *
import struct

h = ctypes.create_string_buffer(struct.pack("<Ii", 8, 1) + struct.pack("<II", 2, 0))
m = ctypes.c_int()
attempt("to-handle", lambda: call("name_to_handle_at", -100, b"/", ctypes.byref(h), ctypes.byref(m), 0))
attempt("by-handle", lambda: call("open_by_handle_at", os.open("/", os.O_PATH), ctypes.byref(h), 0))
