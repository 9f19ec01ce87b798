package engine_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestSessionBusy: of 16 calls for one session at the same time, one runs, and the other 15
// are answered session_busy at once. The running one waits for a file that is put only after
// all 15 answers, so an answer that waits would hang the test. The state of the session is
// kept over many rounds.
func TestSessionBusy(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	const sides, rounds = 16, 8
	for lang, c := range map[sandboxmcp.Language]struct{ first, each, last string }{
		sandboxmcp.Python: {"import os, time; n = 0", "n += 1\nwhile not os.path.exists('go'): time.sleep(.005)\nos.remove('go')", "print(n)"},
		sandboxmcp.Node:   {"const fs = require('fs'); let n = 0", "n++\nwhile (!fs.existsSync('go')) await new Promise(done => setTimeout(done, 5))\nfs.unlinkSync('go')", "console.log(n)"},
		sandboxmcp.Shell:  {"n=0", "n=$((n+1)); until [ -e go ]; do sleep .005; done; rm go", "echo $n"},
	} {
		t.Run(string(lang), func(t *testing.T) {
			t.Parallel()
			needs(t, e, lang)
			id := create(t, e, sandboxmcp.SessionSpec{Language: lang})
			execute(t, e, in(id, c.first))
			for range rounds {
				together, ends := make(chan struct{}), make(chan error, sides)
				for range sides {
					go func() {
						<-together
						_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, in(id, c.each))
						ends <- err
					}()
				}
				close(together)
				await := func() error {
					select {
					case err := <-ends:
						return err
					case <-timeUp(t, backstop):
						t.Fatal("got no answer in time, want one for each caller")
						return nil
					}
				}
				for range sides - 1 {
					wantCode(t, await(), sandboxmcp.CodeSessionBusy)
				}
				if _, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "go", Content: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				if err := await(); err != nil {
					t.Fatal(err)
				}
			}
			if r := execute(t, e, in(id, c.last)); r.Stdout != "8\n" || r.StateLost {
				t.Errorf("cells that ran in %d rounds: got %q, lost %v; want 8", rounds, r.Stdout, r.StateLost)
			}
		})
	}
}

// TestABusySessionNamesItsRequest: the caller that is refused can wait for the request that runs.
func TestABusySessionNamesItsRequest(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	running, up := in("mine", "import time; print('up', flush=True); time.sleep(60)"), newLive()
	running.ID, running.Stdout = "the-first", up
	end := executeIn(t.Context(), t, e, running)
	up.await(t, "up", 0)
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, in("mine", "1"))
	refused := asCode(t, err, sandboxmcp.CodeSessionBusy)
	if want := "Request the-first is running in it: call get_artifacts with it and wait_seconds."; refused.Hint != want || refused.Fields["request_id"] != sandboxmcp.RequestID("the-first") {
		t.Errorf("got %q and %v, want %q and the id", refused.Hint, refused.Fields, want)
	}
	if err := e.Cancel(t.Context(), sandboxmcp.Caller{}, "the-first"); err != nil {
		t.Fatal(err)
	}
	if _, err := end(); err != nil {
		t.Fatal(err)
	}
}
