package redact

// automaton finds many patterns at once (Aho-Corasick). The search is nearly always in a
// state of at most denseDepth bytes. Each of these has a row in a table, indexed by
// classes of bytes. The many deeper states mostly have a single successor and are stored
// as small nodes.
//
// A state is a number: below sparse it is the offset of a row in the table, from sparse
// on it is sparse plus the index of a node.
type automaton struct {
	class  [256]uint8
	stride uint32
	table  []uint32
	sparse uint32
	depths []uint8  // depth of each row's state
	fails  []uint32 // failure state of each row's state
	nodes  []node
	texts  []string  // the long forms
	goes   []goesOn  // indexed by node.goOn: where the long forms continue
	exact  []pattern // the other forms
	all    []byte    // all exact forms, separated by a byte
}

const denseDepth = 2

// node is a state of the automaton. It represents a prefix of a pattern.
type node struct {
	child, next uint32 // first child, next sibling; 0: none
	fail        uint32 // failure state: the longest proper suffix that is a prefix of a pattern
	found       uint32 // node of the longest proper suffix that is a whole pattern; 0: none
	goOn        int32  // first index in goes of the long forms whose fingerprint ends here; -1: none
	length      uint16 // length of the pattern that ends here; 0: none
	depth       uint16
	owner       uint16
	edge        byte
	half        bool // the prefix is at least half of a pattern
}

// goesOn is the offset in a long form where it continues after a fingerprint.
type goesOn struct {
	text, from int32
	more       int32 // next entry for the same fingerprint, of an earlier text or offset; -1: last
}

// pattern is the range of an exact form in automaton.all.
type pattern struct {
	from, to int32
	owner    uint16
}

// Approximate sizes in memory.
const (
	nodeBytes = 28
	goBytes   = 12
)

// bytes returns roughly how much memory the automaton uses.
func (a *automaton) bytes() int {
	n := len(a.table)*4 + len(a.fails)*4 + cap(a.nodes)*nodeBytes + cap(a.all) + (len(a.goes)+len(a.exact))*goBytes
	for _, t := range a.texts {
		n += len(t)
	}
	return n
}

// maxNodes bounds the number of nodes. The fingerprints of long forms share what the exact
// forms leave; each long form has at least one.
const maxNodes = 400_000

const (
	printBytes = 32 // bytes of the secret in a fingerprint
	maxPrints  = 16 // most fingerprints of a form
)

// builder collects the patterns of an automaton.
type builder struct {
	a    *automaton
	long []longForm
}

type longForm struct {
	owner, text int
	window      int
}

// usualGrowth is the total length of all forms divided by the length of the value, for a
// value with few characters that need an escape.
const usualGrowth = 48

// newBuilder makes a builder with memory for room nodes.
func newBuilder(room int) *builder { return &builder{a: &automaton{nodes: make([]node, 1, room+1)}} }

// add adds the forms of a value.
func (b *builder) add(owner int, value string) {
	for _, v := range variants(value) {
		if len(value) <= exactBytes || len(v) < printBytes {
			n := b.insert(owner, v, true)
			b.a.nodes[n].length = uint16(len(v))
			b.a.exact = append(b.a.exact, pattern{int32(len(b.a.all)), int32(len(b.a.all) + len(v)), uint16(owner)})
			b.a.all = append(append(b.a.all, v...), 0xff)
			continue
		}
		grown := max(1, (len(v)+len(value)-1)/len(value))
		b.long = append(b.long, longForm{owner, len(b.a.texts), min(printBytes*grown, len(v))})
		b.a.texts = append(b.a.texts, v)
	}
}

// insert adds the nodes of a pattern and returns the last one.
func (b *builder) insert(owner int, text string, halves bool) uint32 {
	at := uint32(0)
	for i := range len(text) {
		next := b.a.child(at, text[i])
		if next == 0 {
			next = uint32(len(b.a.nodes))
			b.a.nodes = append(b.a.nodes, node{edge: text[i], next: b.a.nodes[at].child, depth: uint16(i + 1), owner: uint16(owner), goOn: -1})
			b.a.nodes[at].child = next
		}
		if n := &b.a.nodes[next]; halves && !n.half && i+1 >= MinBytes && 2*(i+1) >= len(text) {
			n.half, n.owner = true, uint16(owner)
		}
		at = next
	}
	return at
}

// prints adds the fingerprints of the long forms.
func (b *builder) prints() {
	if len(b.long) == 0 {
		return
	}
	share := max(0, maxNodes-len(b.a.nodes)) / len(b.long)
	for _, l := range b.long {
		text := b.a.texts[l.text]
		for _, from := range places(len(text), l.window, share) {
			n := &b.a.nodes[b.insert(l.owner, text[from:from+l.window], false)]
			b.a.goes = append(b.a.goes, goesOn{int32(l.text), int32(from + l.window), n.goOn})
			n.length, n.owner, n.goOn = uint16(l.window), uint16(l.owner), int32(len(b.a.goes)-1)
		}
	}
}

// places returns the offsets of a long form's fingerprints: at its start, and at equal
// distances as far as room allows.
func places(length, window, room int) []int {
	count := max(1, min(maxPrints, room/window, length/window))
	var all []int
	for i := range count {
		all = append(all, i*(length/count))
	}
	return all
}

// build returns the automaton, or nil if it has no patterns.
func (b *builder) build() *automaton {
	b.prints()
	a := b.a
	if len(a.nodes) == 1 {
		return nil
	}
	if cap(a.nodes)-len(a.nodes) > len(a.nodes)/16 { // append has allocated too much
		a.nodes = append(make([]node, 0, len(a.nodes)), a.nodes...)
	}
	a.classes()
	queue, rows := a.breadthFirst()
	for _, c := range a.class {
		a.stride = max(a.stride, uint32(c)+1)
	}
	a.sparse = uint32(rows) * a.stride
	a.table, a.depths, a.fails = make([]uint32, a.sparse), make([]uint8, rows), make([]uint32, rows)
	// The first nodes of the queue are the shallow ones; their rows have the same order.
	row := map[uint32]uint32{}
	for i, n := range queue[:rows] {
		row[n] = uint32(i) * a.stride
		a.depths[i] = uint8(a.nodes[n].depth)
	}
	state := func(n uint32) uint32 {
		if s, shallow := row[n]; shallow {
			return s
		}
		return a.sparse + n
	}
	for i, n := range queue {
		u := &a.nodes[n]
		if i < rows {
			a.fails[i] = u.fail
			to := a.table[row[n] : row[n]+a.stride]
			if n != 0 {
				copy(to, a.table[u.fail:u.fail+a.stride])
			}
			for k := u.child; k != 0; k = a.nodes[k].next {
				a.nodes[k].fail = to[a.class[a.nodes[k].edge]] // where the failure state of u leads
				to[a.class[a.nodes[k].edge]] = state(k)
			}
		} else {
			for k := u.child; k != 0; k = a.nodes[k].next {
				a.nodes[k].fail = a.step(u.fail, a.nodes[k].edge)
			}
		}
		if u.fail >= a.sparse {
			f := u.fail - a.sparse
			if a.nodes[f].length > 0 {
				u.found = f
			} else {
				u.found = a.nodes[f].found
			}
		}
	}
	return a
}

// classes gives each byte that occurs in a pattern its own class, and all others the class
// 0. If all 256 bytes occur, the last one also gets the class 0.
func (a *automaton) classes() {
	var in [256]bool
	for _, n := range a.nodes[1:] {
		in[n.edge] = true
	}
	next := 0
	for c, is := range in {
		if is && next < 255 {
			next++
			a.class[c] = uint8(next)
		}
	}
}

// breadthFirst returns the nodes by depth, and how many of them have a table row.
func (a *automaton) breadthFirst() (queue []uint32, rows int) {
	queue = make([]uint32, 1, len(a.nodes))
	for i := 0; i < len(queue); i++ {
		if a.nodes[queue[i]].depth <= denseDepth {
			rows++
		}
		for k := a.nodes[queue[i]].child; k != 0; k = a.nodes[k].next {
			queue = append(queue, k)
		}
	}
	return queue, rows
}

func (a *automaton) child(n uint32, c byte) uint32 {
	for k := a.nodes[n].child; k != 0; k = a.nodes[k].next {
		if a.nodes[k].edge == c {
			return k
		}
	}
	return 0
}

// step returns the state after a byte.
func (a *automaton) step(s uint32, c byte) uint32 {
	for s >= a.sparse {
		n := s - a.sparse
		if k := a.child(n, c); k != 0 {
			return a.sparse + k
		}
		s = a.nodes[n].fail
	}
	return a.table[s+uint32(a.class[c])]
}

// depth returns how many of the latest bytes may be the beginning of a pattern.
func (a *automaton) depth(s uint32) int {
	if s >= a.sparse {
		return int(a.nodes[s-a.sparse].depth)
	}
	return int(a.depths[s/a.stride])
}

// whole returns the node of the longest pattern that ends in a state, or nil.
func (a *automaton) whole(s uint32) *node {
	n := &a.nodes[s-a.sparse]
	if n.length == 0 {
		if n.found == 0 {
			return nil
		}
		n = &a.nodes[n.found]
	}
	return n
}

// find returns the owner of a pattern in data, or -1. It searches data unchanged, without
// soft line breaks, and as a dump.
func (a *automaton) find(data []byte) int {
	s := a.search()
	_, _ = s.Write(data) // never fails
	return s.close()
}

// skim steps from a state with a table row until it reaches one without, and returns how
// many bytes that took. Each step depends on the one before, so skim processes two parts
// of the data in parallel. The second part starts in the initial state. Its state is
// correct from its denseDepth-th byte on, provided that the first part reaches no state
// without a row until then.
func (a *automaton) skim(s uint32, data []byte) (uint32, int) {
	table, class, sparse := a.table, &a.class, a.sparse
	from := 0
	for ; len(data)-from >= 2*skimBytes; from += 2 * skimBytes {
		first, second := (*[skimBytes]byte)(data[from:]), (*[skimBytes]byte)(data[from+skimBytes:])
		ahead, i := uint32(0), 0
		for i < skimBytes && ahead < sparse {
			s, ahead = table[s+uint32(class[first[i]])], table[ahead+uint32(class[second[i]])]
			i++
			if s >= sparse {
				return s, from + i
			}
		}
		for k, c := range data[from+i : from+skimBytes+denseDepth] {
			if s = table[s+uint32(class[c])]; s >= sparse {
				return s, from + i + k + 1
			}
		}
		if s = ahead; s >= sparse {
			return s, from + skimBytes + i
		}
	}
	for i, c := range data[from:] {
		if s = table[s+uint32(class[c])]; s >= sparse {
			return s, from + i + 1
		}
	}
	return s, len(data)
}

// skimBytes is the length of each part.
const skimBytes = 16
