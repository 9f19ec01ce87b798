// Package jail builds sandboxes on this host's kernel and starts programs in
// them. A wall is one restriction of the kernel: a namespace, a resource limit,
// a filter. The package does not decide who may run what. The caller chooses the
// walls and the size of a sandbox, and gets a sandbox or an error.
//
// # Processes
//
// A [Jail] is one tree of processes below the server:
//
//	server ── builder (user namespace Z; PID 1 of a pid namespace around all), made by a launcher that has ended
//	            ├─ spawner ── init of sandbox 1 (user namespace T1, child of Z) ── program
//	            ├─ spawner ── init of sandbox 2 (user namespace T2, child of Z) ── program
//	            └─ zygote, a process that waits to be forked into sandboxes
//
// Launcher, builder, spawners and inits are the same static program, a few pages long and
// without a libc. Its source is init/init.c; its bytes for amd64 and arm64 are
// embedded. The server starts it from a sealed memory file, so that no sandbox
// can reach or change a program file of the host.
//
// # Scripts
//
// The program contains no policy. The server sends it a [script]: a list of
// system calls with their arguments. The builder's script makes the template
// root that every sandbox starts from (template_linux.go). An init's script
// puts the walls around init (walls_linux.go). Every decision is thus made in
// Go, and every call in a script has a name.
//
// # Wire
//
// All sockets are SEQPACKET pairs made by the server. Numbers are little-endian
// 32-bit words. Descriptors travel as SCM_RIGHTS. Version 1.
//
//	server → launcher  'U' groups+ids flags ids: make a process with these namespaces and ids, and exit (init/launch.c)
//	launcher → server  'S' 0 pid; descriptor: pidfd; or 'E' errno pid, of a process that ends; 0: none
//
//	server → builder   'B' | spawners<<24, script; descriptors: spawners' sockets, then the script's
//	builder → server   'R' n results…; descriptors: mount namespaces (attach_linux.go); or 'E' call errno, and the end
//
//	server → spawner   'N': a request for a sandbox follows; make its network namespace now (no answer)
//	server → spawner   'M' mode flags outer inner, script; descriptors: init's control socket, [network namespace], [cgroup], the script's
//	spawner → server   'S' pid; descriptors: pidfd, [network namespace], if it is a new one; or 'E' errno
//	init → server      'R' n results…; descriptors that the script kept; or 'E' call errno, and the end
//
//	server → spawner   'M' as above, of the mode that ends with its script; descriptors: its socket, then the script's
//	spawner → server   'S' pid; descriptor: pidfd; or 'E' errno
//	its fork → server  'R'; descriptors that the script gave, such as sockets in a sandbox's network namespace; or 'E' call errno
//
//	server → init      'S' tag argc envc limits flags, directory, argv, envp; descriptors become 0, 1, 2, 3 …
//	init → server      'P' tag pid; or 'F' tag errno (also after 'P', when the program could not be executed)
//	server → init      'L'; descriptor: the listener of a fork's system call filter
//	init → server      'N': a program is about to make its first network socket, and waits
//	server → init      'N': it may, and so may all others
//	server → init      'J' n: the sandbox may have many tasks; calls that wait for many files fail, and process groups change only as groups in init.c says, with n joins at most
//	init → server      'W': programs have added half of the epoll watches that were granted
//	server → init      'G' n: programs may add n epoll watches from now on; a call that adds another waits
//	init → server      'X' pid status maxrss user system alone, for every process that ends; alone: no other process is left
//	server → init      'K' pid signal [tag]
//	server → init      'C' tag: kill every process except init
//	init → server      'A' tag: no process except init is left; or the signal was sent
//	server → init      'Q': kill every process and exit
//
//	server → init of a container   'M' as a spawner gets it; the walls and the answer are those of every init (container_linux.go)
//
//	server → zygote    'H' mmap mprotect stays files, code: numbers of system calls, settings, init/snapshot.c with fork.c
//	server → zygote    'W' number, script: store the script that puts walls around forks
//	server → zygote    'F' number ahead; descriptors: init's pidfd, the fork's socket, the Landlock ruleset, the cgroup's v1 "tasks" files
//	zygote → server    'R' once, when it is ready; then 'P': done; or 'E' errno
//	fork → server      'R' pid results…; descriptors: its pidfd, [its filter's listener]; or 'E' errno, and the end
//	server → fork      'I' text: import packages and save your memory; descriptor: a pipe
//	server → fork      'L' ahead: load a snapshot; descriptors: a pipe, the snapshot
//	fork → pipe        'R': done; or 'E' errno text
//	server → fork      "S", options, argc, directory, argv, envp, each with a NUL; descriptors become 0, 1, 2, 3 …
//
// After 'I' or 'L' a fork runs package code, and the server receives nothing from
// its socket. init/snapshot.c defines the format of a snapshot. The server never
// parses one.
//
// Builders, spawners, inits, zygotes and waiting forks exit at end of file on
// their socket. When an init exits, the kernel kills everything in its sandbox.
// Nothing therefore outlives the server, however the server ends.
package jail
