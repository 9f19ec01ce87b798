// Package watch bounds what the kernel does not bound for a sandbox. Group replaces a cgroup where
// there is none. Objects counts kernel objects that no memory limit counts. Both check at
// intervals: between two checks a program can exceed a limit. The comments call one such check a look.
package watch
