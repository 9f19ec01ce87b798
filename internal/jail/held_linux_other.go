//go:build linux && !amd64 && !arm64

package jail

import "golang.org/x/sys/unix"

var syscallBytes []byte // none for this architecture

func codeAndStack(*unix.PtraceRegs) (code, stack uintptr) { return 0, 0 }

func setCall(*unix.PtraceRegs, uint64, [3]uint64) {}

func returned(*unix.PtraceRegs) int64 { return -1 }
