//go:build !linux

package agent

import (
	"errors"
	"net"
)

// Become fails: pods are Linux.
func Become(*net.TCPConn) error { return errors.New("the agent runs on Linux only") }
