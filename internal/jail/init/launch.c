// -- launcher -----------------------------------------------------------------------------------------------------------------
// The server starts this program as a launcher, with its own rights, when it needs a process in new namespaces: the kernel copies the
// memory of the process that makes a user namespace, and the server's is large. launch makes the process as a child of the server, writes
// its id maps and exits. The process gets the ids inside of the namespace and starts this program afresh, on the same control socket.

// Ids are pairs: inside and outside of the new user namespace. GROUPS: the process is a root of its own and gives up its groups. tasks
// and signals are limits of the new namespace, which takes them from the process that makes it; 0: as they are.
struct launch { u32 kind, mode; ul flags; u32 uid[2], gid[2], ids, pad; ul tasks, signals; };

static long lower(int which, ul n) {
	ul limit[2];
	long err = n ? sys4(SYS_prlimit64, 0, which, 0, (long)limit) : 0;
	if (!n || err < 0) return err;
	limit[0] = n;
	return sys4(SYS_prlimit64, 0, which, (long)limit, 0);
}

static void launched(struct launch *q) {
	char *argv[] = {"sandboxmcp-init", 0};
	long err = sys0(SYS_setsid);
	if (q->mode & GROUPS) err = sys2(SYS_setgroups, 0, 0);
	if (err >= 0 && q->mode & OWN_IDS) err = sys3(SYS_setresgid, q->gid[0], q->gid[0], q->gid[0]);
	if (err >= 0 && q->mode & OWN_IDS) err = sys3(SYS_setresuid, q->uid[0], q->uid[0], q->uid[0]);
	if (err >= 0) sys3(SYS_execve, (long)"/proc/self/exe", (long)argv, (long)(argv + 1));
	sys1(SYS_exit_group, 1);
}

static void launch(void) {
	struct launch *q = (struct launch *)buf;
	int go[2], pidfd = -1;
	long err = lower(6 /* NPROC */, q->tasks), pid = -1;
	if (err >= 0) err = lower(11 /* SIGPENDING */, q->signals);
	if (err >= 0) err = sys2(SYS_pipe2, (long)go, 02000000);
	if (err >= 0) err = pid = sys5(SYS_clone, (long)(q->flags | 0x9000 /* PIDFD|PARENT */ | SIGCHLD), 0, (long)&pidfd, 0, 0);
	if (pid == 0) {
		char c;
		sys1(SYS_close, go[1]);
		if (sys3(SYS_read, go[0], (long)&c, 1) != 1) sys1(SYS_exit_group, 1);
		launched(q);
	}
	if (err >= 0) err = map_ids((u32)pid, q->mode, q->uid, q->gid, q->ids);
	u32 o[3] = {'S', 0, (u32)pid};
	if (err >= 0) err = tell(CTL, o, sizeof o, &pidfd, 1);
	if (err >= 0) sys3(SYS_write, go[1], (long)"g", 1);    // not before the server knows the process, so that it can always end it
	else say('E', (u32)-err, pid > 0 ? (u32)pid : 0);
	sys1(SYS_exit_group, 0);                               // the process that got no 'g' ends
}
