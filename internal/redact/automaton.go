package redact

// automaton finds many patterns at once, after Aho and Corasick. States of up to
// denseDepth bytes, in which nearly all of the time is spent, have a row of a
// table each, over classes of bytes; the many deeper ones have as a rule one way on
// and take little more than that.
//
// A state is a number: below sparse the beginning of its row in the table, and
// from there on a node.
type automaton struct {
	class  [256]uint8
	stride uint32
	table  []uint32
	sparse uint32
	depths []uint8  // of the rows
	fails  []uint32 // likewise, as fail of a node
	nodes  []node
	texts  []string  // the long forms
	goes   []goesOn  // by goOn of nodes: where in the long forms one goes on
	exact  []pattern // the others
	all    []byte    // the exact forms, one after the other, with a place between them
}

const denseDepth = 2

// node is a state of a beginning of a pattern.
type node struct {
	child, next uint32 // first child, next sibling; 0: none
	fail        uint32 // state of the longest end of it that is a beginning, too
	found       uint32 // node of the longest end of it that is a whole pattern; 0: none
	goOn        int32  // first of goes for the pattern that ends here; -1: none
	length      uint16 // of the pattern that ends here; 0: none
	depth       uint16
	owner       uint16
	edge        byte
	half        bool // a half of a pattern or more
}

// goesOn is a place in a long form that follows upon a fingerprint.
type goesOn struct {
	text, from int32
	more       int32 // the next one of the same fingerprint; -1: none
}

// pattern is an exact form's place in all.
type pattern struct {
	from, to int32
	owner    uint16
}

// What things take of memory, about.
const (
	nodeBytes = 28
	goBytes   = 12
)

// bytes is what the automaton takes of memory, about.
func (a *automaton) bytes() int {
	n := len(a.table)*4 + len(a.fails)*4 + cap(a.nodes)*nodeBytes + cap(a.all) + (len(a.goes)+len(a.exact))*goBytes
	for _, t := range a.texts {
		n += len(t)
	}
	return n
}

// maxNodes bounds the automaton: the fingerprints of long secrets share what the
// others leave, and each form has one at least.
const maxNodes = 400_000

const (
	printBytes = 32 // of a secret in a fingerprint
	maxPrints  = 16 // of a form
)

// builder puts the patterns together.
type builder struct {
	a    *automaton
	long []longForm
}

type longForm struct {
	owner, text int
	window      int
}

// usualGrowth is how many times as long as a value all its forms are together, when
// it has few characters that need an escape.
const usualGrowth = 48

// newBuilder makes a builder with room for so many nodes.
func newBuilder(room int) *builder { return &builder{a: &automaton{nodes: make([]node, 1, room+1)}} }

// add takes the forms of a value.
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

// insert adds the beginnings of a pattern that are not there yet.
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

// places is where a long form has its fingerprints: at its beginning, and at even
// distances as far as there is room for them.
func places(length, window, room int) []int {
	count := max(1, min(maxPrints, room/window, length/window))
	var all []int
	for i := range count {
		all = append(all, i*(length/count))
	}
	return all
}

// build makes the automaton of what was added; nil when that is nothing.
func (b *builder) build() *automaton {
	b.prints()
	a := b.a
	if len(a.nodes) == 1 {
		return nil
	}
	if cap(a.nodes)-len(a.nodes) > len(a.nodes)/16 { // it grew beyond what was thought
		a.nodes = append(make([]node, 0, len(a.nodes)), a.nodes...)
	}
	a.classes()
	queue, rows := a.breadthFirst()
	for _, c := range a.class {
		a.stride = max(a.stride, uint32(c)+1)
	}
	a.sparse = uint32(rows) * a.stride
	a.table, a.depths, a.fails = make([]uint32, a.sparse), make([]uint8, rows), make([]uint32, rows)
	// The first rows of the queue are those of the shallow nodes, in its order.
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
				a.nodes[k].fail = to[a.class[a.nodes[k].edge]] // where the end of u leads
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

// classes gives a number to each byte that is in a pattern, and 0 to all others;
// or to the last one, should all be in patterns.
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

// breadthFirst lists the nodes by depth, and tells how many have a row.
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

// step is the state after a byte.
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

// depth is how many bytes may be the beginning of a pattern.
func (a *automaton) depth(s uint32) int {
	if s >= a.sparse {
		return int(a.nodes[s-a.sparse].depth)
	}
	return int(a.depths[s/a.stride])
}

// whole is the longest pattern that ends in a state; nil: none does.
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

// find returns the owner of a pattern in data, as it is or without the breaks of
// quoted-printable text; -1: there is none.
func (a *automaton) find(data []byte) int {
	i := a.findPlain(data)
	if i < 0 {
		if joined := withoutBreaks(data); joined != nil {
			i = a.findPlain(joined)
		}
	}
	if i < 0 {
		d, out := a.dumps(), []byte(nil)
		for len(data) > 0 && d.found < 0 {
			part := data[:min(len(data), findPart)]
			data = data[len(part):]
			d.through(&out, part)
		}
		d.close(nil)
		i = d.found
	}
	return i
}

// findPart is how much is looked at for dumps at once.
const findPart = 64 << 10

func (a *automaton) findPlain(data []byte) int {
	s := uint32(0)
	for i := 0; i < len(data); {
		if s < a.sparse {
			var n int
			if s, n = a.skim(s, data[i:]); s < a.sparse {
				return -1
			}
			i += n
		} else {
			s = a.step(s, data[i])
			i++
		}
		if s >= a.sparse {
			if n := a.whole(s); n != nil {
				return int(n.owner)
			}
		}
	}
	return -1
}

// skim goes on from a state with a row until it comes to one without, and tells
// how many bytes that took. A step waits for the one before, so two parts of the
// data are gone through side by side. The second part begins at no state: that is
// right from its denseDepth-th byte on, if the first part has no state without a
// row up to there.
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

// skimBytes is how long the parts are.
const skimBytes = 16
