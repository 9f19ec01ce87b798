//go:build !linux

package api

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// Only Linux can identify the user of a peer, so other systems refuse every connection.

func private(*os.File) error { return errors.ErrUnsupported }

func peerUID(net.Conn) (uint32, error) { return 0, errors.ErrUnsupported }

func address(dir *os.File, name string) string { return filepath.Join(dir.Name(), name) }
