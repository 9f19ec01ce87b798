# tries: to fail with a long error
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "KeyError", and programs run without it
raise KeyError('x' * 100000)
