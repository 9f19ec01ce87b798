package server

import "reflect"

// OpenSessions counts the sessions and connections of MCP clients.
func OpenSessions(s *Server) int {
	n := 0
	for range s.mcp.Sessions() {
		n++
	}
	return n
}

// MaxSessionsEach is the bound on sessions of one caller.
const MaxSessionsEach = maxSessionsEach

// SubscribedURIs counts the URIs that the SDK keeps of subscriptions.
func SubscribedURIs(s *Server) int {
	return reflect.ValueOf(s.mcp).Elem().FieldByName("resourceSubscriptions").Len()
}
