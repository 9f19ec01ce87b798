package testkit_test

import (
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// spy records what Need does to a test. Only the methods that Need calls are
// there; any other is a nil call and so a panic.
type spy struct {
	testing.TB
	said string
}

func (s *spy) Helper()                   {}
func (s *spy) Skipf(f string, a ...any)  { s.say("skip: " + fmt.Sprintf(f, a...)) }
func (s *spy) Fatalf(f string, a ...any) { s.say("fail: " + fmt.Sprintf(f, a...)) }

// say keeps the first word: a real test ends with it.
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
