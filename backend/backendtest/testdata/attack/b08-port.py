# id: B08
# tries: to use the port that another sandbox uses
# beside: neighbour.py
# expect bind: ok
# expect[L1] bind: EAFNOSUPPORT
# expect loopback: hello
# expect[L1] loopback: EAFNOSUPPORT
from attempt import *
import socket


def bind():
    global s
    s = socket.socket()
    s.bind(("127.0.0.1", 8080))
    s.listen()


attempt("bind", bind)


def loopback():
    c = socket.create_connection(("127.0.0.1", 8080), 2) if "s" in globals() else socket.socket()
    a, _ = s.accept()
    a.send(b"hello")
    return c.recv(10).decode()


attempt("loopback", loopback)
