package docker

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// TestTiersOfRuntimes: a container with a kernel of its own has tier L4. A container on the kernel of the
// engine's machine has tier L1, also if its control group holds all limits.
func TestTiersOfRuntimes(t *testing.T) {
	held := []string{"memory", "tasks", "cpu"}
	const lacking = "landlock: none, namespaces: the runtime's, not observed"
	for name, c := range map[string]struct {
		wanted, named, guest, machine string
		tier                          sandboxmcp.Tier
	}{
		"gVisor":                        {"runsc", "runsc", "4.4.0", "6.1.0", sandboxmcp.TierL4},
		"a shared kernel":               {"crun", "crun", "6.1.0", "6.1.0", sandboxmcp.TierL1},
		"another runtime than demanded": {"runsc", "crun", "4.4.0", "6.1.0", sandboxmcp.TierL1},
		"the guest tells no release":    {"runsc", "runsc", "", "6.1.0", sandboxmcp.TierL1},
		"the engine tells no release":   {"runsc", "runsc", "4.4.0", "", sandboxmcp.TierL1},
		"runc of an engine elsewhere":   {"", "runc", "4.4.0", "6.1.0", sandboxmcp.TierL1},
	} {
		x := &box{b: NewRelayed(Config{Runtime: c.wanted}), kernel: c.machine}
		iso := x.report(relay.Seen{Kernel: strings.TrimSpace(c.guest + " #1")}, c.named, held, nil)
		if c.guest == "" {
			iso = x.report(relay.Seen{}, c.named, held, nil)
		}
		if iso.Tier != c.tier {
			t.Errorf("%s: got tier %s, want %s", name, iso.Tier, c.tier)
		}
		if got := strings.Contains(strings.Join(iso.Weak, ", "), lacking); got != (c.tier == sandboxmcp.TierL1) {
			t.Errorf("%s: got weak %q", name, iso.Weak)
		}
		for _, w := range held {
			if !slices.Contains(iso.Walls, w) {
				t.Errorf("%s: got walls %q, want %s among them", name, iso.Walls, w)
			}
		}
	}
}

// TestSwapThatAnEngineDoesNotCountIsTold: where the kernel counts no swap of containers, the engine leaves that limit out.
func TestSwapThatAnEngineDoesNotCountIsTold(t *testing.T) {
	for _, counts := range []bool{true, false} {
		x := &box{b: NewRelayed(Config{}), swaps: counts, meter: &meter{}}
		if got := strings.Join(x.isolation(relay.Seen{}, "runc").Weak, ", "); strings.Contains(got, "does not count swap") == counts {
			t.Errorf("swap is counted: %v; got weak %q", counts, got)
		}
	}
}

// TestQuotaNeedsEachPlace: the wall stands only if each place that programs can write to is bounded.
func TestQuotaNeedsEachPlace(t *testing.T) {
	spec := backend.Spec{MemoryBytes: 1 << 30, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20}
	full := []relay.Size{{Bytes: 1 << 20}, {Bytes: 1 << 20}, {Bytes: 1 << 20}, {Bytes: 8 << 20}}
	if got := seenWalls(relay.Seen{Sizes: full}, spec); !slices.Contains(got, relay.WallQuota) {
		t.Errorf("got %q, want %s", got, relay.WallQuota)
	}
	for i := range full {
		sizes := slices.Clone(full)
		sizes[i].Bytes = 1 << 40
		if got := seenWalls(relay.Seen{Sizes: sizes}, spec); slices.Contains(got, relay.WallQuota) {
			t.Errorf("place %d is not bounded: got %q", i, got)
		}
	}
}

// TestCloseWaitsForContainersThatAreMade: Close returns after the engine has answered a request for a
// container.
func TestCloseWaitsForContainersThatAreMade(t *testing.T) {
	dir, err := os.MkdirTemp("", "close") //nolint:usetesting // sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", filepath.Join(dir, "engine"))
	if err != nil {
		t.Fatal(err)
	}
	making, closed, early := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{}
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/containers/create"):
			close(making)
			wait := time.NewTimer(300 * time.Millisecond) // in which a Close that does not wait would return
			defer wait.Stop()
			select {
			case <-closed:
				early <- true
			case <-wait.C:
				early <- false
			}
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(path, "/version"):
			answer = map[string]any{"ApiVersion": "1.44", "Version": "25"}
		case strings.HasSuffix(path, "/info"):
			answer = map[string]any{"KernelVersion": "6.1.0", "Architecture": "x86_64", "Runtimes": map[string]any{"runsc": map[string]any{}}}
		case strings.HasSuffix(path, "/containers/json"):
			answer = []any{}
		case strings.Contains(path, "/images/"):
			answer = map[string]any{"Id": "sha256:1"}
		}
		w.Header().Set("Api-Version", "1.44")
		_ = json.NewEncoder(w).Encode(answer)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	b := NewRelayed(Config{Host: "unix://" + filepath.Join(dir, "engine"), Runtime: "runsc", Dir: t.TempDir()})
	opened := make(chan error, 1)
	go func() {
		_, err := b.Open(context.WithoutCancel(t.Context()), backend.Spec{ID: "x", MemoryBytes: 1 << 28})
		opened <- err
	}()
	select {
	case <-making:
	case err := <-opened:
		t.Fatalf("no container was asked for: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	close(closed)
	if <-early {
		t.Error("Close has returned while a container was being made")
	}
	if err := <-opened; err == nil {
		t.Error("a container was opened, want an error")
	}
}

// TestLiftAsksTheEngine: an engine elsewhere is asked for all processors of its machine, and then for the sandbox's share
// again. A share that is not below them is left alone.
func TestLiftAsksTheEngine(t *testing.T) {
	for name, c := range map[string]struct {
		share float64
		want  []string
	}{
		"a small share":    {0.1, []string{`POST /v1.44/containers/c1/update {"NanoCpus":2000000000}`, `POST /v1.44/containers/c1/update {"NanoCpus":100000000}`}},
		"all processors":   {2, nil},
		"no limit was set": {0, nil},
	} {
		var got []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Api-Version", "1.44")
			if r.Method == http.MethodPost {
				body, _ := io.ReadAll(r.Body)
				got = append(got, r.Method+" "+r.URL.Path+" "+strings.TrimSpace(string(body)))
			}
			_, _ = io.WriteString(w, "{}")
		}))
		api, err := dockerapi.New(dockerapi.Config{Host: "tcp://" + s.Listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		x := &box{b: NewRelayed(Config{}), id: "c1", cores: 2, spec: backend.Spec{CPUCores: c.share}}
		err = x.lift(api)()
		s.Close()
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q %v, want %q", name, got, err, c.want)
		}
	}
}

// TestLeftContainersGetAProcessor: the limit of a container that an earlier call or server has left is lifted before the
// engine ends its programs. A container with the labels of its image alone is not the server's.
func TestLeftContainersGetAProcessor(t *testing.T) {
	us, err := self()
	if err != nil {
		t.Skip(err)
	}
	owner := strings.Split(us, "/")
	owner[3] = "4194305" // no process has this number
	label := `"Labels":{"` + labelOwner + `":"` + strings.Join(owner, "/") + `"}`
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_, _ = io.WriteString(w, `[{"Id":"of-a-dead-server","ImageID":"sha256:1",`+label+`},{"Id":"of-a-person","ImageID":"sha256:2",`+label+`}]`)
			return
		case strings.HasSuffix(r.URL.Path, "/images/sha256:1/json"):
			_, _ = io.WriteString(w, `{"Id":"sha256:1"}`)
			return
		case strings.HasSuffix(r.URL.Path, "/images/sha256:2/json"): // made of a sandbox
			_, _ = io.WriteString(w, `{"Id":"sha256:2","Config":{`+label+`}}`)
			return
		case r.Method != http.MethodGet:
			got = append(got, r.Method+" "+r.URL.Path)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer s.Close()
	api, err := dockerapi.New(dockerapi.Config{Host: "tcp://" + s.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(Config{Logger: slog.New(slog.DiscardHandler)})
	e.left = []string{"of-a-call"}
	e.sweep(t.Context(), api)
	e.removeLeft(t.Context(), api)
	want := []string{
		"POST /v1.44/containers/of-a-dead-server/update", "DELETE /v1.44/containers/of-a-dead-server",
		"POST /v1.44/containers/of-a-call/update", "DELETE /v1.44/containers/of-a-call",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDirectoriesOfLivingServersStay: servers in containers may share the directory, and a process id of another pid
// namespace says nothing here.
func TestDirectoriesOfLivingServersStay(t *testing.T) {
	const unused = "4194305" // above the largest pid that Linux gives
	dir := t.TempDir()
	here, there, old := dirPrefix()+"1", unused+".1-1", unused+"-1" // old is a name of an earlier release
	for _, name := range []string{here, there, old, unused + "." + pidSpace() + "-1", "1.2-1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sweepDirs(dir, func(space string) bool { return space != "1" })
	if spaceEnded(pidSpace()) {
		t.Error("the pid namespace of this process is taken for one that has ended")
	}
	var got []string
	left, err := os.ReadDir(dir)
	for _, d := range left {
		got = append(got, d.Name())
	}
	want := []string{here, there, old}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q %v, want %q", got, err, want)
	}
}
