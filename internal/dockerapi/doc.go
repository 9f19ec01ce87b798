// Package dockerapi is a client of the Docker Engine API, for the calls that this program makes.
//
// It uses HTTP with JSON over a unix socket, a named pipe of Windows, TCP or TLS. Each call makes its own
// connection, so a client needs no Close. No connection outlives its call. An attempt to connect that a
// context ends continues in the background until its limit. A call and the events that it returns end with
// the call's context. Only the stream of ContainerAttach outlives the context; its caller closes it.
//
// The first call negotiates the version of the API. After an engine has refused a call as one that it does
// not understand (status 400), the next call negotiates again. Every answer is bounded. Structures have
// only the fields that this program uses, with the names of the API's documentation
// (https://docs.docker.com/reference/api/engine/).
//
// No variable of the package is computed before main, because every program that links package engine
// would wait for it.
package dockerapi
