package process_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

const epollWatches = 16_000 // that a user may have, for these tests; an eighth is a sandbox's share

// TestASandboxThatTakesTheEpollWatchesOfItsUserIsEnded: a sandbox whose programs run as the
// server's user is ended if it holds more than its share of that user's epoll watches, also if
// it hides its descriptors. Below its share it lives.
func TestASandboxThatTakesTheEpollWatchesOfItsUserIsEnded(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("as root every sandbox has a user of its own, and so a count of its own")
	}
	for name, mode := range map[string]func(*process.Config){
		"WithNamespaces": func(*process.Config) {}, "WithoutNamespaces": process.WithoutNamespaces,
	} {
		for how, ends := range map[string]bool{
			"one process":          true,
			"many processes":       true,
			"below its share":      false,
			"ended and not reaped": false,
			"descriptors, no use":  false,
			"few descriptors":      true,
			"undumpable and few":   true,
			"undumpable":           true,
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				b := newBackend(mode, func(cfg *process.Config) {
					process.WithEpollWatches(cfg, epollWatches)
					cfg.MinTier = sandboxmcp.TierL1
				})(t)
				defer func() { _ = b.Close(t.Context()) }()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				sb, err := b.Open(ctx, spec("epoll"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = sb.Close(t.Context()) }()
				seconds := "15"
				if !ends {
					seconds = "2" // four rounds of the watch
				}
				var out, errs bytes.Buffer
				r, err := sb.Start(ctx, backend.Process{
					Argv: []string{python(), "/run/program/main.py"}, Env: []string{"PATH=/usr/bin:/bin", "HOW=" + how, "SECONDS=" + seconds}, Stdout: &out, Stderr: &errs,
					Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(testkit.Hostile(t, "holds-epoll-watches.py"))}},
				})
				if err != nil {
					t.Fatal(err)
				}
				exit, err := r.Wait(ctx)
				if err != nil {
					t.Fatal(err)
				}
				_ = sb.Kill(ctx)
				if err := r.Drain(ctx); err != nil {
					t.Error(err)
				}
				exceeded := usage(t, sb).Exceeded
				if ended := exit.Signal == 9; ended != ends || ended != (len(exceeded) > 0) {
					t.Errorf("got exit %+v, exceeded %q, output %q %q; want ended %v", exit, exceeded, out.String(), errs.String(), ends)
				}
			})
		}
	}
}
