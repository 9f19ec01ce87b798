package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestStrangersEndNoRequest: a program of the server's user that has no proof, such as a command of the host, can keep many
// requests of its own from ending, but none of those who have it.
func TestStrangersEndNoRequest(t *testing.T) {
	const strangers = 600 // more than the server keeps
	dir := t.TempDir()
	server, s := listen(t, dir)
	running, crowded := make(chan struct{}), make(chan struct{})
	s.run = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		close(running)
		<-crowded
		return sandboxmcp.Result{Stdout: "done"}, nil
	}
	answered := make(chan error, 1)
	c := peers(t, dir, 1)[0]
	go func() {
		r, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x"})
		if err == nil && r.Stdout != "done" {
			err = fmt.Errorf("got %q", r.Stdout)
		}
		answered <- err
	}()
	<-running
	for i := range strangers {
		if i%40 == 0 {
			time.Sleep(20 * time.Millisecond) // until their requests are answered
		}
		stranger, err := net.Dial("unix", filepath.Join(dir, "run", server.Hello().ID+".sock"))
		if err != nil {
			t.Skipf("this machine cannot open so many connections: %v", err)
		}
		defer func() { _ = stranger.Close() }()
		_, _ = io.WriteString(stranger, "POST /v1/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") // without its body
	}
	again := peers(t, dir, 1)[0]
	if _, err := again.Hello(t.Context()); err != nil {
		t.Errorf("a new caller: %v", err)
	}
	close(crowded)
	if err := <-answered; err != nil {
		t.Errorf("a request of a caller with the proof: %v", err)
	}
}
