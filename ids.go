package sandboxmcp

import (
	"strconv"
	"strings"
	"unicode"
)

// RequestID identifies one execution: UUID version 4 text, or
// run_<UTC time>_<8 hex> for the tools of mcp-code-sandbox.
type RequestID string

// SessionID identifies a sandbox that lives across requests.
type SessionID string

// Namespace identifies a tenant. It comes from the transport's [Identity]; a request can only
// choose among the namespaces of that.
type Namespace string

// DefaultNamespace is the namespace of a caller that has no other.
const DefaultNamespace Namespace = "default"

// ParseNamespace checks that s is 1 to 64 characters of A-Z a-z 0-9 _ . -
func ParseNamespace(s string) (Namespace, error) {
	if !plainName(s, "_.-") {
		return "", Errorf(CodeInvalidArgument, "namespace %s is not 1 to 64 characters of A-Z a-z 0-9 _ . -", Quote(s))
	}
	return Namespace(s), nil
}

// ParseSessionID checks that s is 1 to 64 characters of A-Z a-z 0-9 _ -
func ParseSessionID(s string) (SessionID, error) {
	if !plainName(s, "_-") {
		return "", Errorf(CodeInvalidSessionID, "session id %s is not 1 to 64 characters of A-Z a-z 0-9 _ -", Quote(s))
	}
	return SessionID(s), nil
}

// ParseRequestID checks the form of a request id, not whether it exists. An id of another
// form cannot exist, so the error is [CodeRequestNotFound].
func ParseRequestID(s string) (RequestID, error) {
	if !plainName(s, "_-") {
		return "", Errorf(CodeRequestNotFound, "request %s is not known", Quote(s))
	}
	return RequestID(s), nil
}

func plainName(s, punctuation string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(punctuation, c) >= 0 {
			continue
		}
		return false
	}
	return true
}

// Blank reports whether a character is invisible: white space, and characters that Unicode
// calls printable but that show nothing.
func Blank(r rune) bool {
	return unicode.IsSpace(r) || r == '\u2800' || r == '\U00016FE4' || r == '\U0001D159' || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || r >= 0xE0100 && r <= 0xE01EF
}

// Quote returns s in double quotes with unprintable characters and backquotes escaped, cut to about
// 100 bytes. Messages use it to repeat a caller's text, in which no command is one of this program's.
func Quote(s string) string {
	const limit = 100
	end := ""
	if len(s) > limit {
		s, end = strings.ToValidUTF8(s[:limit], ""), "…"
	}
	return strings.ReplaceAll(strconv.Quote(s), "`", `\x60`) + end
}
