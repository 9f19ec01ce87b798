package seccomp

import "slices"

// node is a test of a filter, or a verdict if it has no op. Equal nodes of a graph are the
// same node, so code that several system calls share occurs only once in a filter.
type node struct {
	op   uint16
	word uint32 // offset in seccomp_data of the tested word
	mask uint32 // bits of the word that are compared
	k    uint32 // value that the word is compared with, or the verdict

	set     uint32 // for opShift: bit i is set if the value k+i passes the test
	yes, no *node
}

const all32 = 0xffffffff

type graph map[node]*node

// node returns the graph's node that is equal to n, and adds it if it is new. For a test
// with the same outcome twice it returns that outcome.
func (g graph) node(n node) *node {
	if n.op != 0 && n.yes == n.no {
		return n.yes
	}
	if g[n] == nil {
		g[n] = &n
	}
	return g[n]
}

func (g graph) verdict(v Verdict) *node { return g.node(node{k: uint32(v)}) }

// numbers returns a decision that finds the rule for a system call number.
func (g graph) numbers(leaves []leaf) *node {
	if len(leaves) == 1 {
		return g.rule(leaves[0].rule)
	}
	if len(leaves) == 3 && leaves[2].first == leaves[1].first+1 { // a single number between two ranges
		if around := g.rule(leaves[0].rule); around == g.rule(leaves[2].rule) {
			return g.node(node{word: offNumber, mask: all32, op: opEqual, k: leaves[1].first, yes: g.rule(leaves[1].rule), no: around})
		}
	}
	mid := len(leaves) / 2
	return g.node(node{word: offNumber, mask: all32, op: opGE, k: leaves[mid].first, yes: g.numbers(leaves[mid:]), no: g.numbers(leaves[:mid])})
}

func (g graph) rule(r rule) *node {
	at := g.verdict(r.otherwise)
	for _, c := range slices.Backward(r.clauses) {
		at = g.clause(c, at)
	}
	return at
}

// clause returns a decision that gives c.then if all tests of c hold, and otherwise goes on
// at otherwise.
func (g graph) clause(c clause, otherwise *node) *node {
	at := g.verdict(c.then)
	for i, t := range slices.Backward(c.when) {
		at = g.test(t, at, knowing(c.when[:i], t, otherwise))
	}
	return at
}

// knowing returns the node at which to continue instead of n if the tests in held are true and
// failed is not. It skips tests whose outcome follows from that.
func knowing(held []test, failed test, n *node) *node {
	for {
		at := n.without(failed)
		for _, t := range held {
			at = at.given(t)
		}
		if at == n {
			return n
		}
		n = at
	}
}

// without is knowing for a test that is not true.
func (n *node) without(t test) *node {
	for n.op != 0 && n.word == t.word() {
		same := n.op == opEqual && n.mask == t.mask && n.k == t.want
		switch {
		case len(t.among) > 0:
			same = n.op == opEqual && n.mask == all32 && slices.Contains(t.among, n.k)
		case t.any:
			same = n.op == opAnyBit && n.k == t.want
		}
		if !same {
			break
		}
		n = n.no
	}
	return n
}

// given is knowing for a test that is true.
func (n *node) given(t test) *node {
	values := t.among
	switch {
	case t.any:
		if n.op == opAnyBit && n.word == t.word() && n.k == t.want {
			return n.yes
		}
		return n
	case len(values) == 0 && t.mask != all32:
		return n
	case len(values) == 0:
		values = []uint32{t.want}
	}
	to := n.of(t.word(), values[0])
	for _, v := range values {
		if n.of(t.word(), v) != to {
			return n
		}
	}
	return to
}

// of returns the node at which to continue instead of n if a word has the given value.
func (n *node) of(word, value uint32) *node {
	for n.op != 0 && n.word == word {
		passes := false
		switch n.op {
		case opEqual:
			passes = value&n.mask == n.k
		case opGE:
			passes = value >= n.k
		case opAnyBit:
			passes = value&n.k != 0
		case opShift:
			passes = value-n.k < 32 && n.set>>(value-n.k)&1 == 1
		}
		if passes {
			n = n.yes
		} else {
			n = n.no
		}
	}
	return n
}

// word returns the offset in seccomp_data of the tested word.
func (t test) word() uint32 {
	off := uint32(offArgs) + 8*uint32(t.arg)
	if t.high {
		off += 4
	}
	return off
}

func (g graph) test(t test, yes, no *node) *node {
	switch {
	case len(t.among) > 0:
		return g.among(t.word(), slices.Sorted(slices.Values(t.among)), yes, no)
	case t.any:
		return g.node(node{word: t.word(), mask: all32, op: opAnyBit, k: t.want, yes: yes, no: no})
	default:
		return g.node(node{word: t.word(), mask: t.mask, op: opEqual, k: t.want, yes: yes, no: no})
	}
}

// fewValues is the number of values from which comparisons take as many instructions as a
// test of a bit set.
const fewValues = 6

// among returns a decision on whether a word is one of the values. The values are sorted.
func (g graph) among(word uint32, values []uint32, yes, no *node) *node {
	if len(values) == 0 {
		return no
	}
	base := values[0]
	if base < 32 {
		base = 0
	}
	set, n := uint32(0), 0
	for ; n < len(values) && values[n]-base < 32; n++ {
		set |= 1 << (values[n] - base)
	}
	if n < fewValues {
		return g.node(node{word: word, mask: all32, op: opEqual, k: values[0], yes: yes, no: g.among(word, values[1:], yes, no)})
	}
	return g.node(node{word: word, mask: all32, op: opShift, k: base, set: set, yes: yes, no: g.among(word, values[n:], yes, no)})
}
