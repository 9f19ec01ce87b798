# tries: to display more than a report may hold
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the cell ends as usual, and the next one is answered
for i in range(30): display('x' * 900000)
