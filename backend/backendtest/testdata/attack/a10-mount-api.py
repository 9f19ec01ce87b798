# id: A10
# tries: the new and the old mount calls
# expect mount: EPERM
# expect umount: EPERM
# expect fsopen: EPERM
# expect fsmount: EPERM
# expect fspick: EPERM
# expect move_mount: EPERM
# expect open_tree: EPERM
# expect mount_setattr: EPERM
# expect pivot_root: EPERM
# expect listmount: ENOSYS
from attempt import *

attempt("mount", lambda: call("mount", 0, 0, 0, 0, 0))
attempt("umount", lambda: call("umount2", 0, 0))
attempt("fsopen", lambda: call("fsopen", b"tmpfs", 0))
attempt("fsmount", lambda: call("fsmount", -1, 0, 0))
attempt("fspick", lambda: call("fspick", -100, 0, 0))
attempt("move_mount", lambda: call("move_mount", -1, 0, -1, 0, 0))
attempt("open_tree", lambda: call("open_tree", -100, b"/", 0x80000))
attempt("mount_setattr", lambda: call("mount_setattr", -1, 0, 0, 0, 0))
attempt("pivot_root", lambda: call("pivot_root", 0, 0))
attempt("listmount", lambda: call("listmount", 0, 0, 0, 0))
