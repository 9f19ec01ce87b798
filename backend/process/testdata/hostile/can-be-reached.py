# tries: nothing; it offers itself in every way in which a process can be reached
# wall: none; the program prepares what reaches-others.py looks for
# expect: it says its process number and a hash, by which a test knows forks of one zygote
import os, socket, threading, time
open('/dev/shm/found', 'w').write('shm'); open('/tmp/found', 'w').write('tmp'); open('/mnt/data/found', 'w').write('data')
servers = [socket.socket(1, 1), socket.create_server(('127.0.0.1', 4711))]
servers[0].bind('\0resident'); servers[0].listen()
secret = 'resident' + '-secret'
print(os.getpid(), hash('x'), flush=True)
time.sleep(60)
