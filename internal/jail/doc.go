// Package jail builds the walls of a sandbox on this host's kernel and starts
// programs behind them. It decides nothing about who may run what: the caller
// says how strong a sandbox has to be and how large, and gets one or an error.
//
// # Processes
//
// A [Jail] is one tree of processes below the server:
//
//	server ── builder (user namespace Z; PID 1 of a pid namespace around all)
//	            ├─ spawner ── init of sandbox 1 (user namespace T1, child of Z) ── program
//	            ├─ spawner ── init of sandbox 2 (user namespace T2, child of Z) ── program
//	            └─ zygote, a process that waits to be forked into sandboxes
//
// Builder, spawners and inits are one static program of a few pages without a
// libc, whose source is init/init.c and whose bytes for amd64 and arm64 are
// embedded; the server starts it from a sealed memory file, so that nothing in
// a sandbox can reach, let alone change, a program file of the host.
//
// # Scripts
//
// The tiny program knows no policy. The server sends it a [script]: a list of
// system calls with their arguments. The builder's script makes the template
// root that every sandbox starts from (template_linux.go); an init's script
// puts the walls around itself (walls_linux.go). The server thus holds every
// decision in one place, in Go, by name.
//
// # Wire
//
// All sockets are SEQPACKET pairs made by the server; numbers are little-endian
// 32-bit words; descriptors travel as SCM_RIGHTS. Version 1.
//
//	server → builder   'B' | spawners<<24, script; descriptors: spawners' sockets, then the script's
//	builder → server   'R' n results…; descriptors: mount namespaces (attach_linux.go); or 'E' call errno, and the end
//
//	server → spawner   'N': a sandbox is about to be asked for; make its network namespace (no answer)
//	server → spawner   'M' mode flags outer inner, script; descriptors: init's control socket, [network namespace], [cgroup], the script's
//	spawner → server   'S' pid; descriptors: pidfd, [network namespace]; or 'E' errno
//	init → server      'R' n results…; descriptors that the script kept; or 'E' call errno, and the end
//
//	server → spawner   'C'; descriptor: a network namespace
//	spawner → server   'C' 1: no socket lives in it; or 'C' 0
//
//	server → spawner   'M' as above, of the mode that ends with its script; descriptors: its socket, then the script's
//	spawner → server   'S' pid; descriptor: pidfd; or 'E' errno
//	its fork → server  'R'; descriptors that the script gave, such as sockets in a sandbox's network namespace; or 'E' call errno
//
//	server → init      'S' tag argc envc limits, directory, argv, envp; descriptors become 0, 1, 2, 3 …
//	init → server      'P' tag pid; or 'F' tag errno (also after 'P', when the program could not be executed)
//	init → server      'N': a socket of the network is about to be made, for the first time
//	init → server      'X' pid status maxrss user system alone, for every process that ends; alone: no other was left
//	server → init      'K' pid signal
//	server → init      'C' tag: end every process but yourself
//	init → server      'A' tag: none is left
//	server → init      'Q' end everything
//
//	server → zygote    'H' setns madvise mmap mprotect prlimit64 stays files, code: numbers of system calls, settings, init/snapshot.c
//	server → zygote    'W' number, script: the walls of a kind of fork
//	server → zygote    'F' number ahead; descriptors: init's pidfd, the fork's socket, the Landlock ruleset, ways into the cgroup
//	zygote → server    'R' when it waits; 'P': done; or 'E' errno
//	fork → server      'R' pid results…; descriptor: its pidfd; or 'E' errno, and the end
//	server → fork      'I' text: import packages and save your memory; descriptor: a pipe
//	server → fork      'L' ahead: load a snapshot; descriptors: a pipe, the snapshot
//	fork → pipe        'R': done; or 'E' errno text
//	server → fork      "S", options, argc, directory, argv, envp, each with a NUL; descriptors become 0, 1, 2, 3 …
//
// After 'I' or 'L' a fork runs package code, and the server receives nothing from
// its socket. init/snapshot.c has the form of a snapshot, which the server never
// reads.
//
// End of file on its socket ends a zygote and a waiting fork, a builder, a spawner and an init, and with an
// init, by the kernel, everything in its sandbox. Nothing therefore outlives
// the server, however it ends.
package jail
