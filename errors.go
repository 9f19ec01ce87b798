package sandboxmcp

import (
	"errors"
	"fmt"
	"maps"
)

// Error is a failure of the product: the request could not be carried out. Message and Hint
// may be shown to a model. Err is for the operator's log only.
type Error struct {
	Code    Code
	Message string         // what failed and why, in one sentence, lower case
	Hint    string         // what to do next; empty: the hint of the code's row
	Fields  map[string]any // further fields of the body, such as size_bytes
	Err     error          // the cause, never shown to a model
}

// Errorf returns an [Error] with a code and a formatted message. It wraps no error; use
// WithCause for that.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns the code, the message and the cause, if there is one.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an [Error] with the same code, so that
// errors.Is(err, &Error{Code: CodeQueueFull}) checks for a code.
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t.Code == e.Code
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(hint string) *Error {
	e.Hint = hint
	return e
}

// WithCause sets the cause and returns e.
func (e *Error) WithCause(err error) *Error {
	e.Err = err
	return e
}

// With adds a field to the body and returns e.
func (e *Error) With(key string, value any) *Error {
	if e.Fields == nil {
		e.Fields = map[string]any{}
	}
	e.Fields[key] = value
	return e
}

// CodeOf returns the code of err. It returns [CodeInternal] for an error without a code, and
// the empty code for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// AsError returns err as an [*Error]. Any other error becomes a [CodeInternal] with a message
// that does not reveal the cause.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: "an internal error occurred", Err: err}
}

// Body returns the JSON body of the failure: error, message, hint and the further fields, but
// not the cause.
func (e *Error) Body() map[string]any {
	b := map[string]any{}
	maps.Copy(b, e.Fields)
	hint := e.Hint
	if hint == "" {
		hint = e.Code.Row().Hint
	}
	b["error"], b["message"], b["hint"] = string(e.Code), e.Message, hint
	return b
}
