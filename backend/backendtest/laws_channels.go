package backendtest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// manyChannels: each channel carries its own bytes, in the direction of its descriptor. A process
// has no other descriptors than the requested ones.
func manyChannels(t *testing.T, s *suite) {
	x := s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const program = `
import os
def there(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True
has = [fd for fd in range(3, 40) if there(fd)]
for fd in has: print("has", fd)
for out in has[::2]:
    if out + 1 in has:
        word = b""
        while not word.endswith(b"\n"): word += os.read(out + 1, 100)
        os.write(out, b"%s from %d\n" % (word.strip(), out + 1))
`
	for _, n := range []int{0, 1, 2, 3, backend.MaxChannels} {
		r, out, errs := x.start(t, channels(x.python(t, program), n))
		var has strings.Builder
		for fd := 3; fd < 3+n; fd++ {
			fmt.Fprintf(&has, "has %d\n", fd)
		}
		want := has.String()
		for pair := range backend.MaxChannels/2 + 1 {
			c := r.Channel(pair)
			if got := c != nil; got != (2*pair < n) {
				t.Fatalf("%d channels: pair %d is there: got %v", n, pair, got)
			}
			if c == nil {
				continue
			}
			if _, err := io.WriteString(c, fmt.Sprintf("word%d\n", pair)); (err == nil) != (2*pair+1 < n) {
				t.Errorf("%d channels: writing to pair %d: %v", n, pair, err)
			}
		}
		for pair := 0; 2*pair < n; pair++ {
			line := ""
			if 2*pair+1 < n {
				line = fmt.Sprintf("word%d from %d\n", pair, 4+2*pair)
			}
			if got, err := io.ReadAll(r.Channel(pair)); err != nil || string(got) != line {
				t.Errorf("%d channels: pair %d: got %q, %v, want %q", n, pair, got, err, line)
			}
		}
		if r.Channel(-1) != nil {
			t.Error("pair -1 is there")
		}
		if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{}) {
			t.Errorf("%d channels: Wait: %+v, %v", n, e, err)
		}
		if err := r.Drain(ctx); err != nil || out.String() != want {
			t.Errorf("%d channels: got %q (%q), %v, want %q", n, out.String(), errs.String(), err, want)
		}
	}
	for _, n := range []int{-1, backend.MaxChannels + 1} {
		if _, err := x.Start(ctx, backend.Process{Argv: []string{"/bin/true"}, Channels: n}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%d channels: got %v, want %s", n, err, sandboxmcp.CodeInvalidArgument)
		}
	}
}

func channels(p backend.Process, n int) backend.Process {
	p.Channels = n
	return p
}
