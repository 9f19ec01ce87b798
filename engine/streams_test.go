package engine_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestStreamsOpenByName: programs can open their standard streams by name in every language, in
// single runs and in a session. Runs are repeated, because later ones are forked or use a sandbox
// that was ready.
func TestStreamsOpenByName(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Languages()...)
	copies := map[sandboxmcp.Language]string{
		sandboxmcp.Python: "a = open('/dev/stdin').read(); _ = open('/dev/stdout', 'w').write(a); _ = open('/dev/stderr', 'w').write(open('/dev/fd/0').read())",
		sandboxmcp.Node:   "{ const fs = require('fs'); fs.writeFileSync('/dev/stdout', fs.readFileSync('/dev/stdin')); fs.writeFileSync('/dev/stderr', fs.readFileSync('/dev/fd/0')) }",
		sandboxmcp.Shell:  "cat /dev/stdin > /dev/stdout; cat /dev/fd/0 > /dev/stderr",
	}
	for _, l := range sandboxmcp.Languages() {
		for _, session := range []sandboxmcp.SessionID{"", create(t, e, sandboxmcp.SessionSpec{Language: l})} {
			for n := range 3 {
				for _, input := range []string{"in\n", ""} {
					req := inLanguage(session, l, copies[l])
					if input != "" {
						req.Stdin = []byte(input)
					}
					// In a session stdin may be a file, which the second open reads again.
					r := execute(t, e, req)
					if r.ExitCode != 0 || r.Stdout != input || r.Stderr != "" && (session == "" || r.Stderr != input) {
						t.Errorf("%s, session %q, run %d with %q: got exit %d, stdout %q, stderr %q", l, session, n, input, r.ExitCode, r.Stdout, r.Stderr)
					}
				}
			}
		}
	}
}
