# tries: to have the host's files, devices and giants collected as its artifacts, under names that break lists
# wall: files are opened by descriptor without following links, only regular ones are taken, and sizes are limited
# expect: the plain files come back signed, and the traps do not; exit code 5
import os
open('a.txt', 'w').write('A')
os.makedirs('sub/deep')
open('sub/deep/b c.txt', 'w').write('B')
os.symlink('/etc/passwd', 'link')
os.symlink('/', 'slash')
os.mkfifo('fifo')
open('one', 'w').write('1')
os.link('one', 'two')
os.truncate(os.open('giant', os.O_CREAT | os.O_WRONLY), 1 << 40)
open(b'bad\xffname', 'w').write('x')
open('new\nline', 'w').write('x')
open('.hidden', 'w').write('x')
os.chmod('a.txt', 0)
os.makedirs('closed')
open('closed/c', 'w').write('x')
os.chmod('closed', 0)
raise SystemExit(5)
