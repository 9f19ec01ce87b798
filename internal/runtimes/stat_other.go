//go:build !unix

package runtimes

import (
	"context"
	"io/fs"
	"os/exec"
)

func identify(info fs.FileInfo) fileID {
	return fileID{Size: info.Size(), MTime: info.ModTime().UnixNano()}
}

func onlyRootWrites(fs.FileInfo) bool { return false }

func ownedByUs(fs.FileInfo) bool { return true }

func command(ctx context.Context, path string, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, path, args...)
}
