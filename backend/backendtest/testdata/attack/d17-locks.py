# id: D17
# tries: to hold more record locks than it may, in the way that the environment names; it stops at 60 000
# kind: a Go test runs it
import fcntl, os, struct, time

WORK, KIND = os.environ["WORK"], os.environ["KIND"]


def take(count, name):
    files = [os.open("%s/%s%d" % (WORK, name, i), os.O_RDWR | os.O_CREAT) for i in range(100)]
    for n in range(count):
        fcntl.fcntl(files[n % 100], fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, n // 100 * 2, 1, 0))


def apart():
    """Processes that each hold few."""
    for child in range(8):
        if os.fork() == 0:
            take(1000, "c%d-" % child)
            time.sleep(30)
            os._exit(0)


def orphans():
    """Their parents are gone, in two steps."""
    if os.fork() == 0:
        if os.fork() == 0:
            apart()
            time.sleep(30)
        os._exit(0)


if KIND == "one":
    take(60000, "f")
elif KIND == "few":
    take(2000, "f")
    print("up", flush=True)
else:
    {"apart": apart, "orphans": orphans}[KIND]()
time.sleep(30)
