package host

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// TestALookKeepsNoBytesOfACallThatHasEnded: a file system can give most of a file and then never answer. Otherwise each of the looks that wait for ever would keep up to 50 MiB.
func TestALookKeepsNoBytesOfACallThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	answer, over := make(chan struct{}), make(chan error, 2)
	waiting := readFunc(func(b []byte) (int, error) {
		cancel()
		<-answer
		return len(b), nil
	})
	read, written := &kept{}, &kept{bytes: []byte("text")}
	_, err := looked(ctx, time.Minute, func(context.Context) (struct{}, error) {
		_, failed := io.Copy(read, io.MultiReader(strings.NewReader("most"), io.LimitReader(waiting, 1)))
		over <- failed
		_, failed = written.Read(make([]byte, 1))
		over <- failed
		return struct{}{}, nil
	})
	if err == nil || string(read.take()) != "most" || string(written.take()) != "text" {
		t.Fatalf("got %v, want that the call ends, and its bytes", err)
	}
	close(answer)
	if first, second := <-over, <-over; first == nil || second == nil || read.bytes != nil || written.bytes != nil {
		t.Errorf("got %v and %v, want that the look has no bytes any more", first, second)
	}
}
