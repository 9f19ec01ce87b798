package redact

import (
	"bytes"
	"slices"
)

// stream is a stream through an automaton. Bytes are held from the first one on
// that may be in a pattern which is not whole yet.
type stream struct {
	a       *automaton
	state   uint32
	pos     int64      // how many bytes came in
	base    int64      // how many of them are done with
	held    []byte     // those between the two
	cover   []span     // what is to be masked and not done with, in order, none touching another
	masked  int64      // where the last mask ends; -1: there was none
	follow  []follower // long forms that go on here
	head    []byte     // the first bytes of all
	lead    int64      // how many of the first bytes are masked
	partial map[int]bool
	joined  joined
}

// span is a part of the stream.
type span struct {
	from, to int64
	told     bool // its mask is out
}

// follower is a place in a long form.
type follower struct{ text, at int32 }

// headBytes is how much of the beginning is looked at for the end of a form: as
// long as the longest form that is looked for as a whole.
const headBytes = 512

func (a *automaton) stream() *stream { return &stream{a: a, masked: -1, joined: joined{last: -1}} }

// write takes bytes and appends what is certain to dst. soft tells whether a soft
// break may begin in them.
func (s *stream) write(dst, p []byte, soft bool) []byte {
	if n := headBytes - len(s.head); n > 0 {
		s.head = append(s.head, p[:min(n, len(p))]...)
	}
	all := p
	if len(s.held) > 0 {
		s.held = append(s.held, p...)
		all = s.held
	}
	if soft || s.joined.seen > 0 || s.joined.active {
		s.scanJoined(p)
	} else {
		s.scan(p)
	}
	return s.emit(dst, all, s.pending(s.pos-int64(s.a.depth(s.state))))
}

// close takes the end, and appends the rest to dst.
func (s *stream) close(dst []byte) []byte {
	if s.state >= s.a.sparse {
		s.lost(s.state, 0)
	}
	s.release()
	s.ends()
	dst = s.emit(dst, s.held, s.pos)
	s.state, s.held, s.head, s.follow = 0, nil, nil, nil
	return dst
}

// scan looks for patterns in the next bytes.
func (s *stream) scan(p []byte) {
	a := s.a
	for i := 0; i < len(p); {
		if s.state < a.sparse && len(s.follow) == 0 {
			state, n := a.skim(s.state, p[i:])
			s.state, s.pos, i = state, s.pos+int64(n), i+n
		} else {
			if len(s.follow) > 0 {
				s.goOn(p[i])
			}
			s.step(p[i])
			s.pos++
			i++
		}
		if s.state >= a.sparse {
			s.arrive()
		}
		for s.state >= a.sparse && a.nodes[s.state-a.sparse].child == 0 { // nothing goes on from here: only an end of it may
			s.state = a.nodes[s.state-a.sparse].fail
		}
	}
}

// step takes a byte in a state without a row. Halves of patterns that do not go on
// are taken note of.
func (s *stream) step(c byte) {
	a := s.a
	next := a.step(s.state, c)
	if s.state >= a.sparse {
		s.lost(s.state, next)
	}
	s.state = next
}

// lost notes the halves that end in a state and do not go on in the next one.
func (s *stream) lost(state, next uint32) {
	a := s.a
	for state >= a.sparse {
		n := &a.nodes[state-a.sparse]
		if next >= a.sparse && a.nodes[next-a.sparse].depth == n.depth+1 { // it goes on, and what are ends of it is in it
			return
		}
		if n.half && !s.covered(s.pos-int64(n.depth), s.pos) {
			s.note(int(n.owner))
		}
		state = n.fail
	}
}

func (s *stream) note(owner int) {
	if s.partial == nil {
		s.partial = map[int]bool{}
	}
	s.partial[owner] = true
}

// covered tells whether a part is masked. It is one that ends with what came in,
// so that only the last span can hold it.
func (s *stream) covered(from, to int64) bool {
	if n := len(s.cover); n > 0 {
		return s.cover[n-1].from <= from && to <= s.cover[n-1].to
	}
	return false
}

// arrive looks at which patterns end here.
func (s *stream) arrive() {
	a := s.a
	n := a.whole(s.state)
	if n == nil {
		return
	}
	s.mask(s.pos-int64(n.length), s.pos)
	for {
		for g := n.goOn; g >= 0; g = a.goes[g].more {
			// One that has come to the same place sees the same from here on.
			if f := (follower{a.goes[g].text, a.goes[g].from}); !slices.Contains(s.follow, f) {
				s.follow = append(s.follow, f)
			}
		}
		if n.found == 0 {
			return
		}
		n = &a.nodes[n.found]
	}
}

// goOn looks which long forms go on with a byte, and masks it if one does.
func (s *stream) goOn(c byte) {
	kept := s.follow[:0]
	for _, f := range s.follow {
		if text := s.a.texts[f.text]; int(f.at) < len(text) && text[f.at] == c {
			kept = append(kept, follower{f.text, f.at + 1})
		}
	}
	if s.follow = kept; len(kept) > 0 {
		s.mask(s.pos, s.pos+1)
	}
}

// mask adds a part to what is masked.
func (s *stream) mask(from, to int64) {
	told := false
	for n := len(s.cover); n > 0 && s.cover[n-1].to >= from; n-- {
		last := s.cover[n-1]
		from, to, told = min(from, last.from), max(to, last.to), told || last.told
		s.cover = s.cover[:n-1]
	}
	s.cover = append(s.cover, span{from, to, told})
	if from == 0 {
		s.lead = to
	}
}

// emit appends all before a place, of which nothing can be in another pattern, and
// holds the rest. all are the bytes that are not done with.
func (s *stream) emit(dst, all []byte, until int64) []byte {
	done := 0
	for s.base < until {
		n := until - s.base
		if len(s.cover) == 0 || s.cover[0].from >= until {
			dst = append(dst, all[done:done+int(n)]...)
		} else if c := &s.cover[0]; c.from > s.base {
			n = c.from - s.base
			dst = append(dst, all[done:done+int(n)]...)
		} else {
			if !c.told && c.from != s.masked {
				dst = append(dst, Mask...)
			}
			c.told = true
			n = min(c.to, until) - s.base
			if s.masked = s.base + n; c.to <= until {
				s.cover = s.cover[1:]
			}
		}
		s.base += n
		done += int(n)
	}
	s.held = append(s.held[:0], all[done:]...)
	return dst
}

// ends looks whether the stream began with the second half of a form.
func (s *stream) ends() {
	if len(s.head) < MinBytes {
		return
	}
	a := s.a
	for from := 0; ; {
		i := bytes.Index(a.all[from:], s.head[:MinBytes])
		if i < 0 {
			return
		}
		from += i
		for _, p := range a.exact { // few get here
			if int(p.from) < from && from < int(p.to) {
				end := a.all[from:p.to]
				if 2*len(end) >= int(p.to-p.from) && bytes.HasPrefix(s.head, end) && s.lead < int64(len(end)) {
					s.note(int(p.owner))
				}
			}
		}
		from++
	}
}
