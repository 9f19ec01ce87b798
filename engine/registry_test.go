package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestPackagesOfTheIndexesOfThisMachine installs packages from the indexes that pip and npm of this
// machine use. A run without a network and a session that was there before can use them. It takes
// two minutes on a busy machine.
func TestPackagesOfTheIndexesOfThisMachine(t *testing.T) {
	testkit.Need(t, "registry", testkit.Demanded("registry"), "it downloads packages only where "+testkit.MustRun+" has the word")
	if testing.Short() {
		t.Skip("it takes up to two minutes")
	}
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() { _ = environment.RemoveTree(packages.Dir(state)) })
	e := openReal(t, at(state), func(c *engine.Config) { c.ClientEnv = os.Environ() })
	for _, c := range []struct {
		language   sandboxmcp.Language
		packages   []string
		keep, kept string // what the session has before, and what shows it
		code, want string
	}{
		{
			sandboxmcp.Python,
			[]string{"six", "requests", "pandas"},
			"kept = 41", "print(kept + 1)",
			"import six, requests, pandas\nprint(six.text_type(6), requests.Request('GET', 'http://name.example/x').prepare().path_url, int(pandas.DataFrame({'a': [1, 2]}).a.sum()))", "6 /x 3\n",
		},
		{
			sandboxmcp.Node,
			[]string{"left-pad", "express"},
			"let kept = 41", "console.log(kept + 1)",
			"console.log(require('left-pad')('7', 3, '0'), typeof require('express')().get)", "007 function\n",
		},
	} {
		needs(t, e, c.language)
		session := create(t, e, sandboxmcp.SessionSpec{Language: c.language})
		stdout(t, e, "", inLanguage(session, c.language, c.keep))
		for _, ask := range []sandboxmcp.InstallAsk{{Language: c.language, Packages: c.packages}, {Language: c.language, Packages: c.packages, SessionID: session}} {
			began := time.Now()
			all := install(t, e, ask)
			t.Logf("%v, session %q: %d packages in %.1f s", c.packages, ask.SessionID, len(all), time.Since(began).Seconds())
			for _, name := range c.packages {
				if !slices.ContainsFunc(all, func(p string) bool { return strings.HasPrefix(p, name+" ") }) {
					t.Errorf("installed: got %q, want %s among them", all, name)
				}
			}
		}
		for _, id := range []sandboxmcp.SessionID{"", session} {
			req := inLanguage(id, c.language, c.code)
			req.Limits = sandboxmcp.Limits{TimeoutSeconds: 120, MaxRAMMB: 1024}
			if id != "" {
				req.Limits = sandboxmcp.Limits{TimeoutSeconds: 120}
			}
			res := execute(t, e, req)
			if res.Stdout != c.want || len(res.Network.Allowed) > 0 {
				t.Errorf("%s in session %q: got %s %q %q and the hosts %v, want %q and none", c.language, id, res.Status, res.Stdout, res.Stderr, res.Network.Allowed, c.want)
			}
		}
		stdout(t, e, "42\n", inLanguage(session, c.language, c.kept))
	}
}
