package seccomp

import "slices"

// Commands that insert input into a terminal or take it over (asm-generic/ioctls.h).
const (
	tiocSCTTY = 0x540e
	tiocSTI   = 0x5412
	tiocLinux = 0x541c
	tiocCons  = 0x541d
)

// ioctlAllowed lists the ioctl commands that a program may use. All others fail with
// ENOTTY. Some of those make the kernel start modprobe on the host, as root (bridges,
// virtual networks, terminals). Others write a whole file system to its disk (btrfs), leave
// keys in a file system until it is unmounted (encryption), or enable timestamps for all
// packets of the host. Each file system has its own commands, and programs can read files
// of the host. Lists and addresses of interfaces (SIOCGIFCONF, SIOCGIFADDR and kin, SIOCETHTOOL) are read
// under the one lock that also changes interfaces, and makes network namespaces, on the whole host.
// FS_IOC_FIEMAP writes to the program's memory while no process of the host can write to the file.
var ioctlAllowed = []uint32{
	0x5401, 0x5402, 0x5403, 0x5404, 0x5405, 0x5406, 0x5407, 0x5408, 0x5409, 0x540a, 0x540b, // TCGETS … TCFLSH
	0x540f, 0x5410, 0x5411, 0x5413, 0x5414, // TIOCGPGRP, TIOCSPGRP, TIOCOUTQ (SIOCOUTQ), TIOCGWINSZ, TIOCSWINSZ
	0x541b, 0x5421, 0x5422, 0x5429, 0x5450, 0x5451, 0x5460, // FIONREAD, FIONBIO, TIOCNOTTY, TIOCGSID, FIONCLEX, FIOCLEX, FIOQSIZE
	0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d, // TCGETS2 … TCSETSF2
	0x8903, 0x8904, 0x8905, // FIOGETOWN, SIOCGPGRP, SIOCATMARK
	0x8910, 0x8913, 0x891d, 0x8921, 0x8927, 0x8933, 0x8942, // SIOCGIFNAME, FLAGS, METRIC, MTU, HWADDR, INDEX, TXQLEN
	0x2, 0x40049409, 0x4020940d, 0xc0189436, // FIGETBSZ, FICLONE, FICLONERANGE, FIDEDUPERANGE
	0x80086601, 0x40086602, 0x80087601, 0x801c581f, // FS_IOC_GETFLAGS, SETFLAGS, GETVERSION, FSGETXATTR
	0x80045200, // RNDGETENTCNT
	notifyReceive, notifySend, notifyFlags,
}

// Commands by which the init of a sandbox answers notifications of its filter
// (linux/seccomp.h). A program has no such filter.
const (
	notifyReceive = 0xc0502100
	notifySend    = 0xc0182101
	notifyFlags   = 0x40082104
)

// The kernel reads the command as 32 bits, so the low word decides. A high word other than
// 0 is refused. The only exception is the sign extension of a negative int: some C
// libraries declare the command as an int.
func ioctlRule() rule {
	plain, signed := []test{highWord(1, 0)}, []test{highWord(1, 0xffffffff), anyBit(1, 0x80000000)}
	listed := oneOf(1, ioctlAllowed)
	return rule{[]clause{
		{[]test{oneOf(1, []uint32{tiocSCTTY, tiocSTI, tiocLinux, tiocCons})}, Refuse(errEPERM)},
		{append(slices.Clone(plain), equal(1, fioAsync)), ignore},
		{append(plain, listed), Allow},
		{append(signed, listed), Allow},
		{plain, Refuse(errENOTTY)},
		{signed, Refuse(errENOTTY)},
	}, Refuse(errEPERM)}
}
