package seccomp

// More families, types and protocols of socket (linux/socket.h, linux/netlink.h, linux/in.h).
const (
	familyNetlink = 16

	netlinkRoute = 0 // interfaces, addresses and routes
	netlinkDiag  = 4 // the sockets of the host

	protoICMP  = 1
	protoICMP6 = 58
)

// commandRules are the rules of Variant.Command.
//
// What a command writes has to reach the disk, so it may ask for that. It may read what the kernel tells about
// networks. Changing them needs a capability. Of sockets for datagrams it also has those for echo requests.
func (p Policy) commandRules(rules map[string]rule) {
	if !p.variant.Command {
		return
	}
	rules["fsync"], rules["fdatasync"] = rule{otherwise: Allow}, rule{otherwise: Allow}
	r := rules["socket"]
	r.clauses = append([]clause{
		{[]test{equal(0, familyNetlink), masked(1, typeMask, typeDatagram), oneOf(2, []uint32{netlinkRoute, netlinkDiag})}, Allow},
		{[]test{equal(0, familyNetlink), masked(1, typeMask, typeRaw), oneOf(2, []uint32{netlinkRoute, netlinkDiag})}, Allow},
		{[]test{equal(0, familyInet), masked(1, typeMask, typeDatagram), equal(2, protoICMP)}, Allow},
	}, r.clauses...)
	if !p.variant.NoIPv6 {
		r.clauses = append([]clause{{[]test{equal(0, familyInet6), masked(1, typeMask, typeDatagram), equal(2, protoICMP6)}, Allow}}, r.clauses...)
	}
	rules["socket"] = r
	if !p.variant.NoAttributes { // else wideRules has them
		neitherRules(rules)
	}
}

// neitherRules are for programs for which Landlock is the only wall around the host's files. They refuse to open a file neither to be read nor to be written. Landlock allows that for every file, and the
// descriptor can take a lease of the file, and control a device before ABI 5 of Landlock. EINVAL is the kernel's error for flags that it does not know.
func neitherRules(rules map[string]rule) {
	for name, flags := range map[string]uint8{"open": 1, "openat": 2} {
		if r, there := rules[name]; there {
			rules[name] = rule{append([]clause{{[]test{masked(flags, openFor, openNothing)}, Refuse(errEINVAL)}}, r.clauses...), r.otherwise}
		}
	}
}

// startRules are the rules of Variant.NoExec and Variant.NoProcesses. The kernel refuses a process with EAGAIN if there are too many.
func (p Policy) startRules(rules map[string]rule) {
	if p.variant.NoExec {
		rules["execve"], rules["execveat"] = rule{otherwise: Refuse(errEACCES)}, rule{otherwise: Refuse(errEACCES)}
	}
	if p.variant.NoProcesses {
		rules["fork"], rules["vfork"] = rule{otherwise: Refuse(errEAGAIN)}, rule{otherwise: Refuse(errEAGAIN)} // on amd64 only
		c := rules["clone"]
		rules["clone"] = rule{append([]clause{{[]test{masked(0, cloneThread, 0)}, Refuse(errEAGAIN)}}, c.clauses...), c.otherwise}
	}
}
