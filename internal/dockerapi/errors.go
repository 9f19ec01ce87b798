package dockerapi

import (
	"errors"
	"fmt"
	"net/http"
)

// Error is the answer of an engine that refuses a call.
type Error struct {
	Status  int    // of HTTP
	Message string // what the engine says
}

// Error returns what the engine says.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the engine answers with status %d", e.Status)
	}
	return "the engine answers: " + e.Message
}

// IsNotFound reports whether the engine does not have what a call names.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict reports whether a call conflicts with the state of an object, such as a removal that the
// engine has already begun.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// IsUnreachable reports whether a call failed because no engine was reached, the connection broke, or
// the other side does not speak HTTP. It is false if the call's context ended.
func IsUnreachable(err error) bool {
	_, ok := errors.AsType[*unreachableError](err)
	return ok
}

// unreachableError is the error of a connection that could not be made, or broke.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string {
	return "the connection to the engine failed: " + e.err.Error()
}

func (e *unreachableError) Unwrap() error { return e.err }
