package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// greed is what a test expects of a cell that takes whatever it gets, until it is ended.
type greed struct {
	limits sandboxmcp.Limits // of its run
	want   []sandboxmcp.Status
	stays  bool // something of it may live on, so that there is no room for what writes files
}

var forever = sandboxmcp.Limits{TimeoutSeconds: 1}

// greedy are the cells of each language, by their names in testdata/hostile/greedy.
var greedy = map[sandboxmcp.Language]map[string]greed{
	sandboxmcp.Python: {
		"forks":           {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, true},
		"threads":         {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut, sandboxmcp.StatusFailed}, true},
		"output":          {sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"errors":          {sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"output of many":  {sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"processor":       {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stubborn":        {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stopped":         {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stops everybody": {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"words":           {sandboxmcp.Limits{TimeoutSeconds: 60}, []sandboxmcp.Status{sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled}, false},
		"descriptors":     {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
	},
	sandboxmcp.Node: {
		"processes": {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"output":    {sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"processor": {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stubborn":  {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stopped":   {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"heap":      {sandboxmcp.Limits{TimeoutSeconds: 30}, []sandboxmcp.Status{sandboxmcp.StatusOutOfMemory, sandboxmcp.StatusSignalled, sandboxmcp.StatusFailed}, false},
	},
	sandboxmcp.Shell: {
		"forks":     {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"output":    {sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"errors":    {sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"processor": {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stubborn":  {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stopped":   {forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"variable":  {sandboxmcp.Limits{TimeoutSeconds: 30}, []sandboxmcp.Status{sandboxmcp.StatusOutOfMemory, sandboxmcp.StatusSignalled, sandboxmcp.StatusFailed}, false},
	},
}

// greedyFile returns the file of a greedy cell.
func greedyFile(l sandboxmcp.Language, name string) string {
	suffix := map[sandboxmcp.Language]string{sandboxmcp.Python: ".py", sandboxmcp.Node: ".js", sandboxmcp.Shell: ".sh"}
	return "greedy/" + string(l) + "/" + strings.ReplaceAll(name, " ", "-") + suffix[l]
}

// TestGreedySessions: a cell that takes whatever it gets is ended with the status that says
// why. Its session serves on, and a session of another namespace keeps its state.
func TestGreedySessions(t *testing.T) {
	e := openReal(t, func(c *engine.Config) { c.MaxSessions = 50 })
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	limits := attacked
	limits.MaxOutputBytes = 64 << 10
	other := create(t, e, sandboxmcp.SessionSpec{}, of("other"))
	beside := in(other, "kept = 1")
	execute(t, e, beside, of("other"))
	beside.Code = "print(kept)"
	for l, cells := range greedy {
		for name, g := range cells {
			t.Run(string(l)+"/"+name, func(t *testing.T) {
				id := create(t, e, sandboxmcp.SessionSpec{Language: l, Limits: limits})
				r := in(id, testkit.Hostile(t, greedyFile(l, name)))
				r.Limits = g.limits
				res := execute(t, e, r)
				if !slices.Contains(g.want, res.Status) {
					t.Errorf("got %s, want one of %s; %.300q", res.Status, g.want, res.Stderr)
				}
				if int64(len(res.Stdout)) > limits.MaxOutputBytes+1000 || int64(len(res.Stderr)) > limits.MaxOutputBytes+1000 {
					t.Errorf("output kept: got %d and %d bytes, want about %d at most", len(res.Stdout), len(res.Stderr), limits.MaxOutputBytes)
				}
				if res := execute(t, e, beside, of("other")); res.Stdout != "1\n" || res.StateLost {
					t.Errorf("the other session: got %s %q %q, want 1", res.Status, res.Stdout, res.Stderr)
				}
				if ended(t, e, id) {
					return
				}
				if g.stays {
					_, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "x", Content: []byte("x")})
					if err != nil {
						wantCode(t, err, sandboxmcp.CodeSessionBusy)
					}
					if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{}, id); err != nil {
						t.Error(err)
					}
					return
				}
				stillServes(t, e, id, l)
			})
		}
	}
}

// ended tells whether a session has gone with its sandbox, which may be where a
// server has to hold the limit on memory itself.
func ended(t *testing.T, e *engine.Engine, id sandboxmcp.SessionID) bool {
	t.Helper()
	held := execute(t, e, sandboxmcp.Request{Code: "1", Language: sandboxmcp.Python}).Isolation.Tier.AtLeast(sandboxmcp.TierL3)
	_, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
	gone := sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionExpired
	if gone && held {
		t.Errorf("the session: got %v, want it alive", err)
	}
	return gone
}

// TestMemoryOfSessions: however a session's cell or a child of it holds memory, it
// gets no more than the session's limit.
func TestMemoryOfSessions(t *testing.T) {
	e := openReal(t, func(c *engine.Config) { c.MaxSessions = 50 })
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	program := string(backendtest.Payload(t, "d01-memory.py"))
	limits := sandboxmcp.Limits{MaxRAMMB: 96, MaxProcesses: 4}
	for by, kinds := range map[string][]string{
		"PythonSession": {"anonymous", "shared", "memfd", "shm", "tmp", "children", "renamed"},
		"ShellSession":  {"anonymous", "memfd", "shm"},
		"NodeSession":   {"anonymous", "shared", "tmp"},
	} {
		by, name := attackers[by], by
		for _, kind := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				l := limits
				if by.language == sandboxmcp.Node {
					l.MaxRAMMB = 160 // it has to start
				}
				id := create(t, e, sandboxmcp.SessionSpec{Language: by.language, Limits: l})
				r := in(id, by.code(fmt.Sprintf("import os\nos.environ['KIND'], os.environ['TMPDIR'] = %q, '/tmp'\nexec(compile(%s, 'd01', 'exec'), {'__name__': '__main__'})\n", kind, quoted(program))))
				r.Limits.TimeoutSeconds = 30
				res := execute(t, e, r)
				refused, kills := strings.HasPrefix(res.Stdout, "refused"), res.Status == sandboxmcp.StatusOutOfMemory || res.Metadata["oom_kills"] != nil
				if !refused && !kills {
					t.Errorf("got %s %q %.300q %v, want it refused or ended for memory", res.Status, res.Stdout, res.Stderr, res.Metadata)
				}
				if limit := float64(l.MaxRAMMB + 1); kills && res.Isolation.Tier.AtLeast(sandboxmcp.TierL3) && res.Usage.PeakRAMMB > limit {
					t.Errorf("peak memory: got %v MiB, want at most %d and one page", res.Usage.PeakRAMMB, l.MaxRAMMB)
				}
				t.Logf("%s %q, peak %v MiB, lost %v", res.Status, res.Stdout, res.Usage.PeakRAMMB, res.StateLost)
				if ended(t, e, id) {
					return
				}
				stillServes(t, e, id, by.language)
			})
		}
	}
}
