package event_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
)

func TestEventsOfARunThatHasEnded(t *testing.T) {
	r := event.Run{ID: "r1", SessionID: "s1", Language: sandboxmcp.Python, Namespace: "ns"}
	res := sandboxmcp.Result{Status: sandboxmcp.StatusOutOfMemory, Artifacts: make([]sandboxmcp.Artifact, 2)}
	for i := range 40 {
		res.Network.Denied = append(res.Network.Denied, sandboxmcp.DeniedRequest{Host: strconv.Itoa(i) + ".test", Port: 443, Times: 1})
	}
	for refused, last := range map[int]string{0: "", 1: "0.test was refused", 32: "31.test was refused", 33: "2 more destinations were refused", 40: "9 more destinations were refused"} {
		some := res
		some.Network.Denied = res.Network.Denied[:refused]
		all := r.Ended(&some, sandboxmcp.Limits{MaxRAMMB: 64})
		if len(all) != 3+min(refused, 32) {
			t.Fatalf("%d refusals: got %d events, want %d", refused, len(all), 3+min(refused, 32))
		}
		want := []sandboxmcp.EventType{sandboxmcp.EventResourceExceeded, sandboxmcp.EventArtifactSigned}
		for range min(refused, 32) {
			want = append(want, sandboxmcp.EventEgressDenied)
		}
		want = append(want, sandboxmcp.EventExecutionFailed)
		var got []sandboxmcp.EventType
		for _, e := range all {
			got = append(got, e.Type)
			if e.Namespace != "ns" || e.Data["request_id"] != r.ID || e.Data["session_id"] != r.SessionID || e.Data["language"] != r.Language {
				t.Errorf("got %+v, want the names of the run", e)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d refusals (-want +got):\n%s", refused, d)
		}
		if refused > 0 && all[len(all)-2].Message != last {
			t.Errorf("%d refusals: got %q last, want %q", refused, all[len(all)-2].Message, last)
		}
	}
}

func TestRateLetsOneEventASecondThrough(t *testing.T) {
	var r event.Rate
	now := time.Unix(1_900_000_000, 0)
	for n, c := range []struct {
		ns   sandboxmcp.Namespace
		at   time.Duration
		want bool
	}{{"a", 0, true}, {"a", 999 * time.Millisecond, false}, {"b", 999 * time.Millisecond, true}, {"a", time.Second, true}, {"a", time.Second, false}} {
		if got := r.Due(c.ns, now.Add(c.at)); got != c.want {
			t.Errorf("%d: namespace %s after %s: got %v, want %v", n, c.ns, c.at, got, c.want)
		}
	}
}

// TestEventsNameSomePackages: events are kept in memory, and an installation may have many packages with long names.
func TestEventsNameSomePackages(t *testing.T) {
	names := make([]string, 1500)
	for n, want := range map[int]int{3: 3, 1500: 100} {
		e := event.Installed("ns", "", sandboxmcp.Node, names[:n])
		if list, _ := e.Data["packages"].([]string); len(list) != want {
			t.Errorf("%d packages: got %d in the event, want %d", n, len(list), want)
		}
		if total := e.Data["packages_total"]; n > want && total != n || n == want && total != nil {
			t.Errorf("%d packages: got the total %v", n, total)
		}
	}
}
