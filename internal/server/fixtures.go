//go:build !conformance

package server

// addFixtures adds nothing. A build with the tag conformance adds what the official
// conformance suite of the protocol expects of a server.
func (*Server) addFixtures() {}
