//go:build !unix

package host

import "os"

const onlyDirectory = 0

// onlyRoot reports whether only an administrator can change a file, which is not known.
func onlyRoot(string) bool { return false }

// links returns how many names a file has, which is not known.
func links(os.FileInfo) uint64 { return 1 }

func keepOwner(*os.File, os.FileInfo) {}

func ownerOf(string) *account { return nil }

// readableBy is of no use where there are no owners.
func readableBy(*account, os.FileInfo) bool { return true }

func mayClose(os.FileInfo, os.FileInfo) bool { return true }

func stored(os.FileInfo) int { return 0 }
