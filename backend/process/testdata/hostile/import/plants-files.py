# tries: to plant a file that shadows a module in the sandbox of each program that loads it
# wall: only programs that import the package get its snapshot; other programs get a sandbox without it
# expect: a program that imports nothing finds no file
import posix
def later():
    for place in '/mnt/data', '/tmp':
        posix.close(posix.open(place + '/json.py', posix.O_CREAT | posix.O_WRONLY))
posix.register_at_fork(after_in_child=later)
