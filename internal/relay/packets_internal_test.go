package relay

import (
	"slices"
	"strings"
	"testing"
)

// TestFewPackets: each thing that a server asks a sandbox for in a run of a session takes one packet, because each packet
// may pass a proxy, and the server waits for its answer. A directory with new entries takes two.
func TestFewPackets(t *testing.T) {
	names := slices.Concat(entry("."), entry(".."), entry("a"), entry("b"))
	file := make([]byte, statSize)
	file[29] = 0o100000 >> 8
	s, f := openFake(t, func(p packet) *reported {
		lists := slices.Contains(p.calls, "getdents64") && strings.Contains(string(p.raw), "full\x00")
		switch {
		case lists && p.from:
			return &reported{results: []int64{7, int64(len(names)), 0, 0}, bytes: names}
		case lists: // with the entries that it had before
			return &reported{results: []int64{7, int64(len(names)), 0, 0, 0, 0}, bytes: append(slices.Concat(file, file, names), make([]byte, guessedSize-len(names))...)}
		case p.kind == 'Y' && p.size == 2*statSize:
			return &reported{results: []int64{7, 0, 0, 0}, bytes: slices.Concat(file, file)}
		}
		return nil
	})
	full := func() error {
		entries, more, err := s.Files().List(t.Context(), "full", 10)
		if len(entries) != 2 || more || entries[0].Name != "a" || !entries[1].Mode.IsRegular() {
			t.Errorf("got %+v, %t, want the files a and b", entries, more)
		}
		return err
	}
	r := &running{s: s, outputs: []*output{newOutput(s.c, 1001, nil, s.effort), newOutput(s.c, 1002, nil, s.effort)}}
	defer r.close()
	asked := func() (n int) {
		for _, p := range f.packets() {
			if p.fd < 0 { // other packets wait for output; no caller waits for their answers
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		what    string
		packets int
		do      func() error
	}{
		{"an empty directory", 1, func() error { _, _, err := s.Files().List(t.Context(), ".", 10); return err }},
		{"a directory", 2, full},
		{"a directory again", 1, full},
		{"a flush", 1, func() error { return r.Flush(t.Context()) }},
		{"texts", 1, func() error { _, err := s.Texts(t.Context(), "/a", "/b", "/c"); return err }},
		{"usage", 0, func() error { _, err := s.Usage(t.Context()); return err }}, // the backend of this test asks for nothing
	} {
		before := asked()
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := asked() - before; got != c.packets {
			t.Errorf("%s: got %d packets, want %d", c.what, got, c.packets)
		}
	}
}

// TestTexts: a file that cannot be read is nil. A long file is cut off.
func TestTexts(t *testing.T) {
	bytes := make([]byte, 3*shortText)
	copy(bytes[shortText:], "second")
	s, _ := openFake(t, func(p packet) *reported {
		if p.size == len(bytes) {
			return &reported{results: []int64{-2, -9, -9, 5, 6, 0, 5, 1 << 20, 0}, bytes: bytes}
		}
		return nil
	})
	got, err := s.Texts(t.Context(), "/none", "/short", "/long")
	if err != nil || got[0] != nil || string(got[1]) != "second" || len(got[2]) != shortText {
		t.Errorf("got %q, %v, want nothing, second, and %d bytes", got, err, shortText)
	}
}

// TestLargeDirectories: a directory whose names do not fit into one packet is read again from its beginning.
func TestLargeDirectories(t *testing.T) {
	pieces := [][]byte{slices.Concat(entry("."), entry("a")), slices.Concat(entry(".."), entry("b")), nil}
	piece := 0
	s, _ := openFake(t, func(p packet) *reported {
		switch {
		case len(p.calls) == 4 && p.calls[1] == "getdents64":
			return &reported{results: []int64{7, int64(len(pieces[0])), -22, 0}, bytes: pieces[0]}
		case len(p.calls) == 1 && p.calls[0] == "getdents64":
			b := pieces[piece]
			piece++
			return &reported{results: []int64{int64(len(b))}, bytes: b}
		}
		return nil
	})
	entries, _, err := s.Files().List(t.Context(), ".", 10)
	if err != nil || len(entries) != 2 || entries[0].Name != "a" || entries[1].Name != "b" {
		t.Errorf("got %+v, %v, want a and b", entries, err)
	}
}

// TestChangedDirectories: a list has the current entries of a directory, also if the directory changed after the last list.
func TestChangedDirectories(t *testing.T) {
	file := make([]byte, statSize)
	names := slices.Concat(entry("a"), entry("b"))
	s, _ := openFake(t, func(p packet) *reported {
		switch {
		case !slices.Contains(p.calls, "getdents64"):
			if p.kind == 'Y' && !p.from && p.size > 0 && p.size%statSize == 0 {
				return &reported{results: make([]int64, len(p.calls)), bytes: slices.Repeat(file, p.size/statSize)}
			}
			return nil
		case p.from:
			return &reported{results: []int64{7, int64(len(names)), 0, 0}, bytes: names}
		default: // a was removed, and c is new
			return &reported{results: []int64{7, int64(len(entry("b"))) * 2, 0, -2, 0, 0}, bytes: append(slices.Concat(file, file, entry("b"), entry("c")), make([]byte, guessedSize-2*len(entry("b")))...)}
		}
	})
	for _, want := range []string{"a b", "b c"} {
		entries, _, err := s.Files().List(t.Context(), ".", 10)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("got %q, %v, want %s", got, err, want)
		}
	}
}

// TestGrownDirectories: a directory that has outgrown its guess is read as one that was never read before.
func TestGrownDirectories(t *testing.T) {
	small, grown := entry("a"), slices.Concat(entry("a"), entry("b"))
	guesses := 0
	s, _ := openFake(t, func(p packet) *reported {
		switch {
		case len(p.calls) == 1 && p.calls[0] == "getdents64":
			return &reported{results: []int64{0}}
		case !slices.Contains(p.calls, "getdents64"):
			return nil
		case !p.from:
			guesses++
			return &reported{results: []int64{7, int64(len(small)), int64(len(small)), 0, 0}, bytes: make([]byte, p.size)}
		case guesses == 0:
			return &reported{results: []int64{7, int64(len(small)), 0, 0}, bytes: small}
		}
		return &reported{results: []int64{7, int64(len(grown)), 0, 0}, bytes: grown}
	})
	for range 3 {
		if _, _, err := s.Files().List(t.Context(), ".", 10); err != nil {
			t.Fatal(err)
		}
	}
	if guesses != 1 || len(s.before.of(".")) != 2 {
		t.Errorf("got %d lists with a guess and %q, want one, and the two names of the third list", guesses, s.before.of("."))
	}
}

// TestGuessesAreNotTheCallersNames: a caller sorts the names that it has got, while another one may use them as a guess.
func TestGuessesAreNotTheCallersNames(t *testing.T) {
	var f former
	names := []string{"b", "a"}
	f.keep("x", names)
	slices.Sort(names)
	if got := f.of("x"); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got %q, want the names as they were kept", got)
	}
}
