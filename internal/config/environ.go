package config

import "os"

// Environ returns this process's environment. Only this function reads it; all other code
// gets it as an argument.
func Environ() []string { return os.Environ() }
