// Package dockerapi is a client of the Docker Engine API, for the calls that this program makes.
//
// It speaks HTTP with JSON over a unix socket, a named pipe of Windows, TCP or TLS. Each call has a
// connection of its own, so a client needs no Close. No connection outlives its call, except that the
// attempt to make one ends only after its limit. A call ends when its context ends, and so does what it
// returned: events and answers. Only the stream of ContainerAttach outlives the context; its caller closes it.
//
// The client and the engine agree on a version of the API with the first call, and again after an
// engine has refused a call as one that it does not understand (status 400). Every answer is
// bounded. Structures have only the fields that this program uses, with the names of the API's
// documentation (https://docs.docker.com/reference/api/engine/).
//
// The package has no variables that are computed before main: every program that embeds the engine
// room would wait for them.
package dockerapi
