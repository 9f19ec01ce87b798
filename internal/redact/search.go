package redact

import "bytes"

// Search looks for secrets in data that arrives in pieces. It finds what [Masker.Find] finds in
// the whole data, in memory that does not depend on its length.
type Search struct {
	names []string
	a     *automaton

	found int    // owner of a form; -1: none
	plain uint32 // state over the data as it is

	// The data without soft line breaks. Until the first break it is the data as it is.
	split  bool   // there was a break
	joined uint32 // state; before the first break, that before edge
	behind bool   // directly after a skipped break
	edge   []byte // the end of the data so far, if it may be the start of a break
	buffer []byte // edge and the next bytes
	bare   []byte // data without breaks

	dumps *dumps
	out   []byte // output of dumps, which is not used
}

// Search starts a search. It returns nil if there are no secrets to find.
func (m *Masker) Search() *Search {
	if m == nil || m.auto == nil {
		return nil
	}
	s := m.auto.search()
	s.names = m.names
	return s
}

func (a *automaton) search() *Search { return &Search{a: a, found: -1, dumps: a.dumps()} }

// Write takes the next bytes. It never fails.
func (s *Search) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && s.found < 0; {
		piece := rest[:min(len(rest), searchPiece)]
		rest = rest[len(piece):]
		s.write(piece)
	}
	return len(p), nil
}

// searchPiece is how many bytes are searched in all three ways before the next ones.
const searchPiece = 64 << 10

// Close ends the data. It returns the name of a secret that the data contains, or "". It may be
// called for a nil Search.
func (s *Search) Close() string {
	if s == nil {
		return ""
	}
	if i := s.close(); i >= 0 {
		return s.names[i]
	}
	return ""
}

func (s *Search) close() int {
	if s.found < 0 && s.split && len(s.edge) > 0 {
		s.joined, s.found = s.a.scan(s.joined, s.edge)
	}
	if s.found < 0 {
		s.dumps.close(nil)
		s.found = s.dumps.found
	}
	return s.found
}

// write searches p as it is, without soft line breaks, and as a dump.
func (s *Search) write(p []byte) {
	data, old := p, len(s.edge)
	if old > 0 {
		s.buffer = append(append(s.buffer[:0], s.edge...), p...)
		data = s.buffer
	}
	n := len(data) - breakStart(data)
	body := p[:max(0, n-old)]
	if s.plain, s.found = s.a.scan(s.plain, body); s.found >= 0 {
		return
	}
	before := s.plain
	if s.plain, s.found = s.a.scan(s.plain, p[len(body):]); s.found >= 0 {
		return
	}
	switch {
	case s.split || bytes.Contains(data[:n], breaks[0]) || bytes.Contains(data[:n], breaks[1]):
		s.split = true
		s.joined, s.found = s.a.scan(s.joined, s.withoutBreaks(data[:n]))
	case n >= old:
		s.joined = before
	}
	s.edge = append(s.edge[:0], data[n:]...)
	if s.found < 0 {
		s.dumps.through(&s.out, p)
		s.found = s.dumps.found
	}
}

// breakStart returns how many bytes at the end of data may be the start of a break.
func breakStart(data []byte) int {
	switch {
	case bytes.HasSuffix(data, []byte("=")):
		return 1
	case bytes.HasSuffix(data, []byte("=\r")):
		return 2
	}
	return 0
}

// withoutBreaks returns data without soft line breaks. Data does not end within a break.
func (s *Search) withoutBreaks(data []byte) []byte {
	out := s.bare[:0]
	defer func() { s.bare = out }()
	for {
		i := bytes.IndexByte(data, '=')
		if i < 0 {
			s.behind = s.behind && len(data) == 0
			out = append(out, data...)
			return out
		}
		out, data = append(out, data[:i]...), data[i:]
		s.behind = s.behind && i == 0
		switch {
		case !s.behind && bytes.HasPrefix(data, breaks[0]):
			data, s.behind = data[len(breaks[0]):], true
		case !s.behind && bytes.HasPrefix(data, breaks[1]):
			data, s.behind = data[len(breaks[1]):], true
		default:
			out, data, s.behind = append(out, '='), data[1:], false
		}
	}
}

// scan searches data from a state on. It returns the state after it and the owner of a form in
// it, or -1.
func (a *automaton) scan(s uint32, data []byte) (state uint32, owner int) {
	for i := 0; i < len(data); {
		if s < a.sparse {
			var n int
			if s, n = a.skim(s, data[i:]); s < a.sparse {
				return s, -1
			}
			i += n
		} else {
			s = a.step(s, data[i])
			i++
		}
		if s >= a.sparse {
			if n := a.whole(s); n != nil {
				return s, int(n.owner)
			}
		}
	}
	return s, -1
}
