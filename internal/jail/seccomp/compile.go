package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// MaxInstructions is the kernel's limit for one filter (BPF_MAXINSNS).
const MaxInstructions = 4096

// InstructionSize is the size in bytes of one instruction in a compiled filter, a struct
// sock_filter.
const InstructionSize = 8

// instruction is one of the kernel's classic BPF instructions (linux/filter.h).
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

const (
	opLoad  = 0x20 // A = word at k of seccomp_data
	opValue = 0x00 // A = k
	opAnd   = 0x54 // A &= k
	opSub   = 0x14 // A -= k
	opShift = 0x6c // A <<= X
	opToX   = 0x07 // X = A

	opScratch  = 0x02 // M[0] = A
	opScratchX = 0x61 // X = M[0]

	opJump   = 0x05 // skip k
	opEqual  = 0x15 // A == k ? skip jt : skip jf
	opGE     = 0x35 // A >= k ? skip jt : skip jf
	opAnyBit = 0x45 // A & k  ? skip jt : skip jf
	opReturn = 0x06 // verdict k

	offNumber = 0 // struct seccomp_data (linux/seccomp.h)
	offAudit  = 4
	offArgs   = 16
)

// Compile returns the filter of the policy for an architecture: an array of struct
// sock_filter in little-endian byte order, as seccomp(2) takes it. It fails for an unknown
// architecture and for a policy that exceeds the kernel's limit.
//
// The filter is a balanced search tree over ranges of system call numbers with the same
// verdict. Its leaves test arguments. Each sandbox and each fork loads the filter, and the cost of
// loading grows with its length: the kernel checks, translates and compiles it. The kernel
// also runs a new filter once for every system call number, to find those that are allowed
// for all arguments, and never filters these again. That works only if the path to such a
// verdict has no arithmetic.
func Compile(p Policy, a Arch) ([]byte, error) {
	table, err := numbersOf(a)
	if err != nil {
		return nil, err
	}
	g := graph{}
	calls := g.numbers(leavesOf(table, p.partOf(p.rulesOf(a), a), p.variant.Part))
	prog, err := layoutBy(g.node(node{word: offAudit, mask: all32, op: opEqual, k: a.AuditValue(), yes: calls, no: g.verdict(KillProcess)}), p.variant.Scratch)
	if err == nil {
		err = check(prog)
	}
	if err != nil {
		return nil, fmt.Errorf("compile system-call filter for %s: %w", a, err)
	}
	out := make([]byte, 0, len(prog)*InstructionSize)
	for _, in := range prog {
		out = binary.LittleEndian.AppendUint16(out, in.code)
		out = append(out, in.jt, in.jf)
		out = binary.LittleEndian.AppendUint32(out, in.k)
	}
	return out, nil
}

// leaf is a range of numbers. It ends before the first number of the next leaf.
type leaf struct {
	first uint32
	rule  rule
}

// leavesOf returns leaves for all 32-bit numbers. Gaps, numbers above the table, the x32
// table and -1 get ENOSYS. Rest allows what it has no rule for.
func leavesOf(table []number, rules map[string]rule, part Part) []leaf {
	byNumber := map[uint32]rule{}
	for _, n := range table {
		if r, ok := rules[n.name]; ok {
			byNumber[n.nr] = r
		}
	}
	nrs := make([]uint32, 0, 2*len(byNumber))
	for nr := range byNumber {
		nrs = append(nrs, nr, nr+1)
	}
	slices.Sort(nrs)
	absent := rule{otherwise: Refuse(errENOSYS)}
	if part == Rest {
		absent.otherwise = Allow
	}
	leaves := []leaf{{0, absent}}
	for _, nr := range slices.Compact(nrs) {
		r, ok := byNumber[nr]
		if !ok {
			r = absent
		}
		last := &leaves[len(leaves)-1]
		switch {
		case last.first == nr:
			last.rule = r
		case len(r.clauses) == 0 && len(last.rule.clauses) == 0 && r.otherwise == last.rule.otherwise:
		default:
			leaves = append(leaves, leaf{nr, r})
		}
	}
	return leaves
}

// check verifies what the kernel requires: the length, jumps within the program, and a return
// at the end. It also verifies that every instruction can be reached.
func check(prog []instruction) error {
	if len(prog) > MaxInstructions {
		return fmt.Errorf("%d instructions, the kernel takes %d", len(prog), MaxInstructions)
	}
	reached := make([]bool, len(prog)+1)
	reached[0] = true
	mark := func(to uint64) error {
		if to >= uint64(len(prog)) {
			return fmt.Errorf("a jump leaves the program of %d instructions", len(prog))
		}
		reached[to] = true
		return nil
	}
	for i, in := range prog {
		if !reached[i] {
			return fmt.Errorf("instruction %d cannot be reached", i)
		}
		next := []uint64{uint64(i) + 1}
		switch in.code {
		case opReturn:
			next = nil
		case opJump:
			next[0] += uint64(in.k)
		case opEqual, opGE, opAnyBit:
			next = []uint64{uint64(i) + 1 + uint64(in.jt), uint64(i) + 1 + uint64(in.jf)}
		case opLoad, opValue, opAnd, opSub, opShift, opToX, opScratch, opScratchX:
		default:
			return fmt.Errorf("instruction %d has the unknown code %#x", i, in.code)
		}
		for _, to := range next {
			if err := mark(to); err != nil {
				return err
			}
		}
	}
	return nil
}
