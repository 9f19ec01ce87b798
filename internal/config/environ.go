package config

import "os"

// Environ is this process's environment, for callers that are handed none. It
// is the one place where it is read.
func Environ() []string { return os.Environ() }
