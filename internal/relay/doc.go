// Package relay builds sandboxes of containers whose runtime passes no descriptors to the server:
// gVisor's runsc, Kata, and engines in a virtual machine. The server reaches such a container only by
// the engine's stream to its first process. That process is the program of program/relay.c. It
// makes system calls for the server, starts programs and reports their ends.
//
// # Wire
//
// Packets are little-endian 32-bit words, the first two of which are the size and the kind. Version 1.
//
//	relay → server   'R' version: it is ready
//	server → relay   'Y' tag fd events n answer from, n calls, bytes: a list of system calls. With fd ≥ 0 it waits until poll reports events of fd
//	server → relay   'Z' tag: do not wait any longer
//	server → relay   'S' tag argc envc limits files, kinds of files, directory, argv, envp: start a program
//	server → relay   'F' tag, as 'Y': the list that every program carries out before it is executed
//	server → relay   'C' tag: end every process but the relay
//	relay → server   'Y' tag n, n results of 64 bits, bytes: the answer to each of these
//	relay → server   'X' pid status milliseconds KiB: a process has ended
//
// What comes from the relay is untrusted: a program that has taken over the container's kernel could
// write it. Sizes are bounded, every answer belongs to a question, and no part of an answer is a path
// or a command on the server's machine.
//
// # Walls
//
// The relay begins as root of its container, with few capabilities. It makes directories and
// addresses, drops what it no longer needs, and then works with the effective user of the programs.
// Each program drops every capability, gets its limits and loads the filter of package seccomp before
// it is executed. A second process of the relay's program observes the walls (observe.go). The relay
// starts it as every other program, behind the same walls.
package relay
