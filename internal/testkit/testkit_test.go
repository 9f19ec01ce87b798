package testkit_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// spy records what a function of the kit does to a test. It has only the methods that
// these functions call; any other call panics.
type spy struct {
	testing.TB
	said string
}

func (s *spy) Helper()                   {}
func (s *spy) Skipf(f string, a ...any)  { s.say("skip: " + fmt.Sprintf(f, a...)) }
func (s *spy) Fatalf(f string, a ...any) { s.say("fail: " + fmt.Sprintf(f, a...)) }

// say keeps only the first report, because a real test ends there.
func (s *spy) say(what string) {
	if s.said == "" {
		s.said = what
	}
}

func TestNeed(t *testing.T) {
	for _, c := range []struct {
		name, must string
		ok         bool
		want       string
	}{
		{"there", "root", true, ""},
		{"missing on a laptop", "", false, "skip: needs root: no"},
		{"missing, another word demanded", "roots,node", false, "skip: needs root: no"},
		{"missing and demanded", "node,root", false, "fail: root is demanded by SANDBOXMCP_MUST_RUN and is not there: no"},
		{"blanks between words", "node, root", false, "fail: root is demanded by SANDBOXMCP_MUST_RUN and is not there: no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(testkit.MustRun, c.must)
			s := &spy{}
			testkit.Need(s, "root", c.ok, "no")
			if got := s.said; got != c.want {
				t.Errorf("Need says %q, want %q", got, c.want)
			}
		})
	}
}

// TestUntil: a wait ends as soon as its condition holds, and fails the test with the
// condition's name if it never does.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Second)
		for _, c := range []struct {
			name, want string
			wait       func(s *spy)
		}{
			{"met", "", func(s *spy) { testkit.Until(s, "a second", func() bool { return !time.Now().Before(at) }) }},
			{"never met", "fail: got nothing within 1m0s, want: a miracle", func(s *spy) { testkit.Until(s, "a miracle", func() bool { return false }) }},
			{"equal", "", func(s *spy) { testkit.UntilEqual(s, "digits", 1, func() int { return 1 }) }},
			{"never equal", "fail: digits: got 2 after 1m0s, want 1", func(s *spy) { testkit.UntilEqual(s, "digits", 1, func() int { return 2 }) }},
		} {
			s := &spy{TB: t}
			begin := time.Now()
			c.wait(s)
			if s.said != c.want {
				t.Errorf("%s: the test was told %q, want %q", c.name, s.said, c.want)
			}
			if took := time.Since(begin); c.want == "" && took > 2*time.Second {
				t.Errorf("%s: got a wait of %v, want at most 2s", c.name, took)
			}
		}
	})
}

// TestHostile: a hostile program is read by its name, and one whose head does not say what it
// tries, what stops it and what is expected is refused.
func TestHostile(t *testing.T) {
	t.Chdir(t.TempDir())
	const whole = "# tries: to stay\n# wall: the timeout\n# expect: timed_out\npass\n"
	for name, text := range map[string]string{"whole.py": whole, "bare.py": "pass\n"} {
		if err := errors.Join(os.MkdirAll("testdata/hostile", 0o755), os.WriteFile("testdata/hostile/"+name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s := &spy{}
	if got := testkit.Hostile(s, "whole.py"); got != whole || s.said != "" {
		t.Errorf("whole.py: got %q and %q, want the program", got, s.said)
	}
	if testkit.Hostile(s, "bare.py"); !strings.Contains(s.said, "want comments with tries:, wall: and expect:") {
		t.Errorf("bare.py: the test was told %q, want what is missing", s.said)
	}
}
