package seccomp

import (
	"errors"
	"slices"
)

// loaded describes the content of the accumulator: the bits in mask of a word of
// seccomp_data. The zero value means that the content is unknown.
type loaded struct{ word, mask uint32 }

// layout emits a graph as a program. It emits the last instruction first, so that the target
// of a jump is emitted before the jump. A comparison can jump over at most 255 instructions.
// If its target is farther away, it jumps to an unconditional jump in between, or to a copy
// of the verdict.
func layout(root *node) ([]instruction, error) { return layoutBy(root, false) }

// layoutBy is layout. With scratch, X is loaded from scratch memory.
func layoutBy(root *node, scratch bool) ([]instruction, error) {
	l := emitter{scratch: scratch, entries: map[*node]map[loaded]int{}, ways: map[*node]map[loaded]bool{}}
	l.walk(root, loaded{})
	l.emit(root)
	if root.op == 0 {
		l.reach(root, loaded{}, 0)
	}
	if l.broken {
		return nil, errors.New("a jump is too long")
	}
	slices.Reverse(l.out)
	return l.out, nil
}

type emitter struct {
	out     []instruction            // instructions from the last to the first
	entries map[*node]map[loaded]int // where in out a node begins, by the content of the accumulator
	ways    map[*node]map[loaded]bool
	broken  bool // the target of a comparison is too far away
	scratch bool // X is loaded from scratch memory, see Variant.Scratch
}

// holds returns the content of the accumulator after a node's test.
func (n *node) holds() loaded {
	if n.op == opShift || n.op == 0 {
		return loaded{}
	}
	return loaded{n.word, n.mask}
}

// entry returns the key in entries of the node's beginning for a content of the accumulator.
func (n *node) entry(has loaded) loaded {
	if n.op != 0 && has.word == n.word && (has.mask == n.mask || has.mask == all32) {
		return has
	}
	return loaded{}
}

// walk records the beginnings of each node that are used.
func (l *emitter) walk(n *node, has loaded) {
	at := n.entry(has)
	if l.ways[n] == nil {
		l.ways[n] = map[loaded]bool{}
	} else if l.ways[n][at] {
		return
	}
	l.ways[n][at] = true
	if n.op != 0 {
		l.walk(n.yes, n.holds())
		l.walk(n.no, n.holds())
	}
}

// skip returns the jump distance to a place, for a comparison that is emitted now.
func (l *emitter) skip(to int) uint8 {
	far := len(l.out) - to - 1
	l.broken = l.broken || far < 0 || far > 255
	return uint8(far)
}

// put emits one instruction and returns its place.
func (l *emitter) put(in instruction) int {
	l.out = append(l.out, in)
	return len(l.out) - 1
}

// emit emits a node, after the nodes that it leads to. Verdicts are emitted where needed.
func (l *emitter) emit(n *node) {
	if n.op == 0 || l.entries[n] != nil {
		return
	}
	l.emit(n.no)
	l.emit(n.yes)
	at, first := map[loaded]int{}, l.emitTest(n)
	at[loaded{n.word, n.mask}] = first
	if ways := l.ways[n]; n.mask != all32 && (ways[loaded{}] || ways[loaded{n.word, all32}]) {
		first = l.put(instruction{code: opAnd, k: n.mask})
	}
	at[loaded{n.word, all32}] = first
	if l.ways[n][loaded{}] {
		first = l.put(instruction{code: opLoad, k: n.word})
	}
	at[loaded{}] = first
	l.entries[n] = at
}

// emitTest emits the test of a node for an accumulator that holds its word, and returns
// the place of its first instruction.
func (l *emitter) emitTest(n *node) int {
	if n.op != opShift {
		first, _ := l.branch(n.op, n.k, n, 0)
		return first
	}
	between := 3
	if l.scratch {
		between++
	}
	_, no := l.branch(opAnyBit, n.set, n, between+1) // the bit of the value is in the set
	l.put(instruction{code: opShift})
	l.put(instruction{code: opValue, k: 1})
	if l.scratch {
		l.put(instruction{code: opScratchX})
		l.put(instruction{code: opScratch})
	} else {
		l.put(instruction{code: opToX})
	}
	first := l.put(instruction{code: opGE, k: 32, jt: l.skip(no)})
	if n.k != 0 {
		first = l.put(instruction{code: opSub, k: n.k})
	}
	return first
}

// branch emits a comparison that jumps to a node's yes or no. It returns the places of the
// comparison and of no. The next more instructions that are emitted can also jump to no.
func (l *emitter) branch(op uint16, k uint32, n *node, more int) (first, no int) {
	no = l.reach(n.no, n.holds(), more+1) // 1: reach may insert an instruction for yes
	yes := l.reach(n.yes, n.holds(), 0)
	return l.put(instruction{code: op, k: k, jt: l.skip(yes), jf: l.skip(no)}), no
}

// reach returns a place that leads to a node and is near enough for a comparison that is
// emitted after that many further instructions.
func (l *emitter) reach(n *node, has loaded, after int) int {
	const far = 255
	at, emitted := l.entries[n][n.entry(has)]
	switch {
	case emitted && len(l.out)+after-at-1 <= far:
		return at
	case n.op != 0:
		return l.put(instruction{code: opJump, k: uint32(len(l.out) - at - 1)})
	default:
		at = l.put(instruction{code: opReturn, k: n.k})
		l.entries[n] = map[loaded]int{{}: at} // later comparisons can use it, too
		return at
	}
}
