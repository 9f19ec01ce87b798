package app

// UsageError reports a wrong command line.
type UsageError struct{ text string }

// Error implements error.
func (e *UsageError) Error() string { return e.text }

// Usage returns a [UsageError].
func Usage(text string) error { return &UsageError{text} }
