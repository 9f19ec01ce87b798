package jail

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestSilentSpawnerEndsTheJail: a spawner that does not answer delays a caller for no longer
// than the limit, and gets no further request.
func TestSilentSpawnerEndsTheJail(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the whole limit")
	}
	t.Parallel()
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	if n := stopSpawners(t, j); n != 1 {
		t.Fatalf("%d spawners were stopped, want 1", n)
	}
	turn, err := j.Turn()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	made := make(chan error, 1)
	go func() {
		s, err := turn.New(SlotConfig{Size: testSize})
		if err == nil {
			_ = s.Close()
		}
		made <- err
	}()
	select {
	case err := <-made:
		if err == nil {
			t.Error("New by a stopped spawner: got a sandbox, want an error")
		}
		t.Logf("after %v: %v", time.Since(begin).Round(time.Millisecond), err)
	case <-time.NewTimer(answerLimit + 5*time.Second).C:
		t.Fatal("New by a stopped spawner: got no answer after the limit, want an error")
	}
	select {
	case <-j.Done():
	case <-time.NewTimer(2 * time.Second).C:
		t.Error("got a jail that lives, want it ended: a late answer would be taken for another's")
	}
	if _, err := j.Turn(); err == nil {
		select {
		case <-j.Done(): // its end is what the next caller is told by New
		default:
			t.Error("Turn of the ended jail: got one, want an error")
		}
	}
}

// TestStoppedZygote: callers of a zygote that does not run are refused, all of them within one
// limit and not one after the other. Their sandboxes hold no part of a fork.
func TestStoppedZygote(t *testing.T) {
	t.Parallel()
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	z := testZygote(t, j)
	const askers = 6
	var slots []*Slot
	for range askers {
		s := made(t, j)
		defer func() { _ = s.Close() }()
		slots = append(slots, s)
	}
	if err := unix.Kill(z.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin, answers := time.Now(), make(chan error, askers)
	for _, s := range slots {
		go func() {
			_, err := z.Fork(s, nil, false)
			answers <- err
		}()
	}
	up := time.NewTimer(answerLimit)
	defer up.Stop()
	for range askers {
		select {
		case err := <-answers:
			if !errors.Is(err, ErrNotForked) {
				t.Errorf("got %v, want a refusal that leaves the sandbox as it was", err)
			}
		case <-up.C:
			t.Fatal("Fork of a stopped zygote: got no answer within the limit, want an error for each")
		}
	}
	t.Logf("after %v", time.Since(begin).Round(time.Millisecond))
	if !z.Broken() {
		t.Error("the stopped zygote: got it in use, want it given up")
	}
	for _, s := range slots {
		if n := inside(t, s); n != 1 {
			t.Errorf("%d processes are in a sandbox, want its init alone", n)
		}
	}
}

// stopSpawners stops the builder's children and returns how many. It waits for them first,
// because the builder makes them after its answer.
func stopSpawners(t *testing.T, j *Jail) int {
	t.Helper()
	stopped := 0
	testkit.Until(t, "a spawner to stop", func() bool {
		files, _ := filepath.Glob("/proc/" + strconv.Itoa(j.pid) + "/task/*/children")
		for _, f := range files {
			b, _ := os.ReadFile(f)
			for w := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(w); err == nil && unix.Kill(pid, unix.SIGSTOP) == nil {
					stopped++
				}
			}
		}
		return stopped > 0
	})
	return stopped
}

// TestFewFilesBesideTheServer: programs of the server's own user get fewer
// descriptors than the inits beside them, which have some to send.
func TestFewFilesBesideTheServer(t *testing.T) {
	most := hardLimit(unix.RLIMIT_NOFILE)
	if got := int64(ownFiles()); got > 512 || got > most/2 || got < min(512, most/2) {
		t.Errorf("a program gets %d files where the server may have %d", got, most)
	}
}
