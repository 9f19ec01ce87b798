// Package clients is the trial of this server with the clients that people have:
// two coding agents, the protocol's inspector, its conformance suite and its SDKs in
// other languages. It is tests alone.
//
// Each agent runs as its users run it, with the built program as a stdio server
// and a home of its own. In place of its model's service stands a program of the
// tests on loopback, which plays a script of tool calls and keeps what the model
// would have read. That is compared, word for word, with what testdata says.
//
// scripts/clients.sh installs the clients. Where they are not installed the tests
// are skipped; the word for internal/testkit is "clients".
package clients
