package redact

import (
	"bytes"
	"slices"
)

// Quoted-printable text breaks lines by "=" at the end of a line (a soft line break), which
// can split a value anywhere. joined searches the stream without these breaks. It has its
// own state only while a form may span a break. A break directly after another is treated
// as text: no encoder writes that, and a run of breaks could otherwise hold back any number
// of bytes.
type joined struct {
	seen   int    // bytes of a possible break so far: "=" or "=\r"
	before uint32 // state of the stream before the possible break
	at     int64  // position of the possible break

	active bool
	state  uint32
	pos    int64  // position of this search: behind the stream by the possible break
	wait   []byte // the bytes of the possible break
	skips  []skip // the last breaks that were skipped, oldest first
	last   int64  // end of the last skipped break; -1: none
}

// skip is a skipped break: the n bytes before position after.
type skip struct {
	after int64
	n     int64
}

var breaks = [...][]byte{[]byte("=\n"), []byte("=\r\n")}

// scanJoined searches the next bytes for patterns, with and without soft line breaks. From
// a break on it takes bytes one by one, until no form can span that break.
func (s *stream) scanJoined(p []byte) {
	j := &s.joined
	for i := 0; i < len(p); {
		if !j.active && j.seen == 0 {
			n := nextBreak(p[i:])
			s.scan(p[i : i+n])
			if i += n; i == len(p) {
				return
			}
		}
		before := s.state
		s.scan(p[i : i+1])
		s.join(p[i], before, s.pos-1)
		i++
	}
}

// endsSoft reports whether a line ends with a soft line break. The line is given without
// its line feed.
func endsSoft(line []byte) bool {
	return bytes.HasSuffix(line, []byte("=")) || bytes.HasSuffix(line, []byte("=\r"))
}

// nextBreak returns the position of the next break, or of a possible break at the end of p,
// or the end of p.
func nextBreak(p []byte) int {
	for at := 0; ; at++ {
		end := bytes.IndexByte(p[at:], '\n')
		last := end < 0
		if at += end; last {
			at = len(p)
		}
		if endsSoft(p[:at]) {
			return bytes.LastIndexByte(p[:at], '=')
		}
		if last {
			return at
		}
	}
}

// join takes the byte at pos. before is the state of the stream before that byte.
func (s *stream) join(c byte, before uint32, pos int64) {
	j := &s.joined
	switch {
	case c == '=':
		s.release()
		j.seen, j.before, j.at = 1, before, pos
	case j.seen == 1 && c == '\r':
		j.seen = 2
	case j.seen > 0 && c == '\n' && j.at != j.last:
		s.leaveOut(pos + 1)
		return
	default:
		s.release()
	}
	if j.active {
		j.wait = append(j.wait, c)
		if j.seen == 0 {
			s.release()
		}
	}
}

// leaveOut skips a break that ends at end.
func (s *stream) leaveOut(end int64) {
	j := &s.joined
	if !j.active {
		j.state = s.a.within(j.before, j.at-j.last)
		j.active = s.a.depth(j.state) > 0
		j.skips = j.skips[:0]
	}
	j.last = end
	if j.active {
		if len(j.skips) == 2*headBytes { // a byte lies between two breaks, so a form spans less than headBytes of them
			j.skips = append(j.skips[:0], j.skips[headBytes:]...)
		}
		j.skips = append(j.skips, skip{end, end - j.at})
		j.pos = end
	}
	j.seen, j.wait = 0, j.wait[:0]
}

// release takes the bytes in wait, which are not a break after all.
func (s *stream) release() {
	j := &s.joined
	j.seen = 0
	for _, c := range j.wait {
		j.state = s.a.step(j.state, c)
		j.pos++
		if j.state >= s.a.sparse {
			if n := s.a.whole(j.state); n != nil {
				s.mask(j.start(int64(n.length)), j.pos)
			}
		}
		if int64(s.a.depth(j.state)) <= j.pos-j.last {
			j.active = false
			break
		}
	}
	j.wait = j.wait[:0]
}

// start returns the position of the n-th last byte, not counting skipped breaks.
func (j *joined) start(n int64) int64 {
	at := j.pos
	for _, k := range slices.Backward(j.skips) {
		if n <= at-k.after {
			break
		}
		n -= at - k.after
		at = k.after - k.n
	}
	return at - n
}

// pending returns the position of the first byte of a possible form that spans a break, or
// pos.
func (s *stream) pending(pos int64) int64 {
	j := &s.joined
	if j.seen > 0 {
		pos = min(pos, j.at-int64(s.a.depth(j.before)))
	}
	if j.active {
		pos = min(pos, j.start(int64(s.a.depth(j.state))))
	}
	return pos
}

// within returns the state of the longest suffix that has at most n bytes.
func (a *automaton) within(state uint32, n int64) uint32 {
	for int64(a.depth(state)) > n {
		if state >= a.sparse {
			state = a.nodes[state-a.sparse].fail
			continue
		}
		state = a.fails[state/a.stride]
	}
	return state
}
