// Package docker is the backend whose sandboxes are containers of a Docker engine on this machine.
//
// The engine makes a container's namespaces, mounts and control group, and starts the init of
// package jail as its first process. Init connects to the server and puts the walls of package jail
// around itself: the system call filter, Landlock and limits. From there on the sandbox is one of
// package process, with the same streams, files, network and pool. This package makes the
// containers, and says what their walls do not hold.
//
// The way of a sandbox:
//
//	process.Backend.Open ── Engine.Start ─┬─ jail.OpenDoor       the directory that the container sees at /.sandboxmcp
//	                                      ├─ Engine.create       the container, with every flag (container.go)
//	                                      └─ jail.Door.Wait      init connects; its process is the container's
//	                     ├─ cgroup.Adopt                         the limits, read back
//	                     └─ jail.Jail.Adopt                      walls by init, read back
//
// A container ends when its server ends, because init does. The engine then removes it. If it could
// not, the next server removes containers of dead servers (owner.go). The containers have a label
// with their server's process.
//
// Only runc is used. Other runtimes, such as gVisor's runsc, have a kernel of their own: init
// cannot pass descriptors through it.
package docker
