# id: D22
# tries: to use more of the processor than its share, by timers that continue it whenever it is stopped; it stops after 2 s
# kind: a Go test runs it
import ctypes, signal, time


class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_char * 48)]


class Times(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every", "every_ns", "first", "first_ns")]


signal.signal(signal.SIGCONT, lambda *_: None)  # the kernel sends no signal that is ignored
libc = ctypes.CDLL(None)
if not hasattr(libc, "timer_create"):
    libc = ctypes.CDLL("librt.so.1")
for i in range(120):  # a stop discards the signals that wait, and their timers with them
    timer = ctypes.c_void_p()
    made = libc.timer_create(1, ctypes.byref(Event(None, 18, 0)), ctypes.byref(timer))  # SIGCONT
    if made or libc.timer_settime(timer, 0, ctypes.byref(Times(0, 120000000, 0, 1000000 * (i + 1))), None):
        print("no timer")
while time.process_time() < 2:
    pass
print("burned", flush=True)
