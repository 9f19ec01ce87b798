package seccomp

import (
	"slices"
	"strings"
)

// Part says what a filter has of its policy. If a process has two filters, the kernel takes the stricter
// verdict. A policy can therefore be loaded in two parts. Both together decide as the whole does.
type Part uint8

// The parts of a policy.
const (
	Whole Part = iota

	// Common decides on what all variants refuse, except for the calls that build a sandbox. It is the same
	// filter for every variant. A process loads it once, and all processes that it starts inherit it.
	Common

	// Rest decides on the calls that build a sandbox, and on what its variant refuses besides. Each
	// sandbox loads it. It is short, so loading it is cheap. Without Common it allows nearly everything.
	Rest
)

// buildNames are the calls that build a sandbox, make sockets in one or prepare a fork, and that a
// program may not make, or not with the same arguments.
const buildNames = `process_madvise mount umount2 open_tree move_mount mount_setattr unshare setns clone clone3 pidfd_open
	prctl prlimit64 seccomp signalfd4 socket ` + landlockNames

// Arguments of calls that make sockets in a sandbox: to bring up a network device (SIOCSIFFLAGS,
// linux/sockios.h), and for the socket of refusals (SO_ATTACH_FILTER, SO_RCVBUF; SOL_PACKET,
// PACKET_IGNORE_OUTGOING, linux/if_packet.h).
const (
	setInterface   = 0x8914
	attachFilter   = 26
	receiveBuffer  = 8
	levelPacket    = 263
	ignoreOutgoing = 23
)

// buildArguments are calls that build a sandbox with some arguments, and that a program may make with
// others. Each clause has the verdict of the whole policy.
func buildArguments() map[string][]clause {
	return map[string][]clause{
		"ioctl": {
			{[]test{equal(1, setInterface), highWord(1, 0)}, Refuse(errENOTTY)},
			{[]test{equal(1, setInterface)}, Refuse(errEPERM)},
		},
		"setsockopt": {
			{[]test{equal(1, levelSocket), equal(2, attachFilter)}, Refuse(errENOPROTOOPT)},
			{[]test{equal(1, levelSocket), equal(2, receiveBuffer)}, ignore},
			{[]test{equal(1, levelPacket), equal(2, ignoreOutgoing)}, Refuse(errENOPROTOOPT)},
		},
	}
}

// partOf returns the rules of a part of the policy, from those of the whole.
func (p Policy) partOf(rules map[string]rule, a Arch) map[string]rule {
	switch p.variant.Part {
	case Common:
		return commonRules(rules)
	case Rest:
		return restRules(rules, Policy{}.rulesOf(a))
	case Whole:
	}
	return rules
}

func commonRules(rules map[string]rule) map[string]rule {
	for name := range strings.FieldsSeq(buildNames) {
		rules[name] = rule{otherwise: Allow}
	}
	for name, clauses := range buildArguments() {
		r := rules[name]
		for _, c := range clauses {
			r.clauses = append([]clause{{c.when, Allow}}, r.clauses...)
		}
		rules[name] = r
	}
	return rules
}

// restRules returns the rules that Common lacks. common are the rules of the zero variant.
func restRules(rules, common map[string]rule) map[string]rule {
	builds, rest := strings.Fields(buildNames), map[string]rule{}
	arguments := buildArguments()
	for name, r := range rules {
		switch {
		case slices.Contains(builds, name) || !r.equal(common[name]):
			rest[name] = r
		case arguments[name] != nil:
			rest[name] = rule{arguments[name], Allow}
		}
	}
	for _, name := range builds {
		if _, ok := rules[name]; !ok {
			rest[name] = rule{otherwise: Refuse(errENOSYS)}
		}
	}
	return rest
}

func (r rule) equal(o rule) bool {
	same := func(a, b test) bool {
		return a.arg == b.arg && a.high == b.high && a.any == b.any && a.mask == b.mask && a.want == b.want && slices.Equal(a.among, b.among)
	}
	return r.otherwise == o.otherwise && slices.EqualFunc(r.clauses, o.clauses, func(a, b clause) bool {
		return a.then == b.then && slices.EqualFunc(a.when, b.when, same)
	})
}
