package redact

import "bytes"

// stream masks the matches of an automaton. It holds bytes back from the first one that
// may belong to an incomplete match.
type stream struct {
	a       *automaton
	state   uint32
	pos     int64      // bytes received
	base    int64      // bytes emitted or masked
	held    []byte     // the bytes from base to pos
	cover   []span     // parts to mask from base on, sorted, neither overlapping nor touching
	masked  int64      // end of the last mask; -1: none
	follow  []follower // long forms whose fingerprint was found and that continue here, in the order of automaton.goes
	spare   []follower // scratch space of start
	head    []byte     // the first headBytes bytes of the stream
	lead    int64      // how many bytes at the start of the stream are masked
	partial map[int]bool
	joined  joined
}

// span is a part of the stream.
type span struct {
	from, to int64
	told     bool // its mask was written to the output
}

// follower is an offset in a long form.
type follower struct{ text, at int32 }

// headBytes is how many bytes at the start of the stream are checked for the second half
// of a form. It is the length of the longest form that is searched for as a whole.
const headBytes = 512

func (a *automaton) stream() *stream { return &stream{a: a, masked: -1, joined: joined{last: -1}} }

// write takes bytes and appends to dst the output that can no longer change. soft says
// whether a soft line break may begin in them.
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

// close ends the stream and appends the rest to dst.
func (s *stream) close(dst []byte) []byte {
	if s.state >= s.a.sparse {
		s.lost(s.state, 0)
	}
	s.release()
	s.ends()
	dst = s.emit(dst, s.held, s.pos)
	s.state, s.held, s.head, s.follow, s.spare = 0, nil, nil, nil, nil
	return dst
}

// scan searches the next bytes for patterns.
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
		for s.state >= a.sparse && a.nodes[s.state-a.sparse].child == 0 { // a leaf: only a suffix of it can continue
			s.state = a.nodes[s.state-a.sparse].fail
		}
	}
}

// step takes a byte in a state without a table row. It records halves of patterns that end
// here.
func (s *stream) step(c byte) {
	a := s.a
	next := a.step(s.state, c)
	if s.state >= a.sparse {
		s.lost(s.state, next)
	}
	s.state = next
}

// lost records the owners of halves of patterns that end in a state, if the next state does
// not continue them.
func (s *stream) lost(state, next uint32) {
	a := s.a
	for state >= a.sparse {
		n := &a.nodes[state-a.sparse]
		if next >= a.sparse && a.nodes[next-a.sparse].depth == n.depth+1 { // it continues, and so do its suffixes
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

// covered reports whether a part is masked. The part must end at pos, so that only the last
// span can contain it.
func (s *stream) covered(from, to int64) bool {
	if n := len(s.cover); n > 0 {
		return s.cover[n-1].from <= from && to <= s.cover[n-1].to
	}
	return false
}

// maxFollowers bounds the work for one byte. Only a long secret that repeats itself reaches
// it: its fingerprint is found again while the first followers still continue. The first
// ones are kept. After the others, only bytes that are part of a fingerprint are masked.
const maxFollowers = 256

// arrive masks the longest pattern that ends here, and starts followers for fingerprints.
func (s *stream) arrive() {
	a := s.a
	n := a.whole(s.state)
	if n == nil {
		return
	}
	s.mask(s.pos-int64(n.length), s.pos)
	for {
		s.start(n.goOn)
		if n.found == 0 {
			return
		}
		n = &a.nodes[n.found]
	}
}

// start adds the followers of a fingerprint, from index g of automaton.goes on. It leaves out those
// that are there: two followers at the same offset of the same form would continue alike. Both
// lists have the same order, so start reads each once.
func (s *stream) start(g int32) {
	had, room := s.follow, maxFollowers-len(s.follow)
	if g < 0 || room <= 0 {
		return
	}
	all, i := s.spare[:0], 0
	for ; g >= 0 && room > 0; g = s.a.goes[g].more {
		f := follower{s.a.goes[g].text, s.a.goes[g].from}
		for i < len(had) && had[i].before(f) {
			all, i = append(all, had[i]), i+1
		}
		if i == len(had) || had[i] != f {
			all, room = append(all, f), room-1
		}
	}
	all = append(all, had[i:]...)
	s.follow, s.spare = all, had
}

// before reports whether f comes before g in the order of automaton.goes.
func (f follower) before(g follower) bool {
	return f.text > g.text || f.text == g.text && f.at > g.at
}

// goOn keeps the followers whose form continues with the byte, and masks it if there are any.
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

// mask adds a part to s.cover and merges it with parts that it overlaps or touches.
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

// emit appends the masked output up to a position, before which no further match can begin,
// and holds the rest. all are the bytes from base on.
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

// ends records the secrets of which the stream begins with the second half of a form.
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
		for _, p := range a.exact { // rarely reached
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
