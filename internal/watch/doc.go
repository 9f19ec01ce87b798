// Package watch bounds what the kernel does not bound for a sandbox. Group stands in for a
// cgroup where there is none. Objects counts kernel objects that no memory limit counts.
// Both look at intervals: between two looks a program can take more.
package watch
