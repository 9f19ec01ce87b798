package redact

import (
	"bytes"
	"slices"
)

// Mail breaks the lines of quoted-printable text by an equals sign at their end,
// anywhere in a value. joined follows a stream as it is without these breaks. It has a
// state of its own only while a form may go across one. A break directly behind one
// that is left out is text: no encoder writes it, and a run of them would hold back
// any number of bytes.
type joined struct {
	seen   int    // how much of a break was seen: "=", "=\r"
	before uint32 // state of the stream in front of it
	at     int64  // where that is

	active bool
	state  uint32
	pos    int64  // how far it has come: behind the stream by what may be a break
	wait   []byte // that
	skips  []skip // breaks that were left out, the oldest first
	last   int64  // where the last break ends that was left out; -1: there was none
}

// skip is a break: n bytes that end before a place.
type skip struct {
	after int64
	n     int64
}

var breaks = [...][]byte{[]byte("=\n"), []byte("=\r\n")}

// scanJoined looks for patterns in the next bytes, as they are and without breaks. Bytes are looked at one by one from a break on until no form can go
// across it.
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

// endsSoft reports whether a soft break begins at the end of a line, which is given
// without its line feed.
func endsSoft(line []byte) bool {
	return bytes.HasSuffix(line, []byte("=")) || bytes.HasSuffix(line, []byte("=\r"))
}

// nextBreak returns where a break begins, or may begin at the end of p, or that end.
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

// withoutBreaks is a text without the breaks; nil when it has none.
func withoutBreaks(data []byte) []byte {
	if !bytes.Contains(data, breaks[0]) && !bytes.Contains(data, breaks[1]) {
		return nil
	}
	out := make([]byte, 0, len(data))
	for behind := false; ; { // a break that was left out
		i := bytes.IndexByte(data, '=')
		if i < 0 {
			return append(out, data...)
		}
		out, data = append(out, data[:i]...), data[i:]
		behind = behind && i == 0
		switch {
		case !behind && bytes.HasPrefix(data, breaks[0]):
			data, behind = data[len(breaks[0]):], true
		case !behind && bytes.HasPrefix(data, breaks[1]):
			data, behind = data[len(breaks[1]):], true
		default:
			out, data, behind = append(out, '='), data[1:], false
		}
	}
}

// join follows a byte that came in at pos, in front of which the stream was in a state.
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

// leaveOut goes on behind a break.
func (s *stream) leaveOut(end int64) {
	j := &s.joined
	if !j.active {
		j.state = s.a.within(j.before, j.at-j.last)
		j.active = s.a.depth(j.state) > 0
		j.skips = j.skips[:0]
	}
	j.last = end
	if j.active {
		j.skips = append(j.skips, skip{end, end - j.at})
		j.pos = end
	}
	j.seen, j.wait = 0, j.wait[:0]
}

// release goes on with what has turned out to be no break.
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

// start is where the last n bytes begin, breaks left out.
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

// pending is the first byte that may be in a form which goes across a break, or pos.
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

// within is the longest end of a state that has at most n bytes.
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
