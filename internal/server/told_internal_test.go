package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// contractTools are the names of all tools of the contract, also of those that are not built yet.
var contractTools = strings.Fields(`execute_code install_package validate_code create_session terminate_session bridge_data
	list_runtimes set_resource_limits sandbox_stats inspect_state get_artifacts request_egress audit_execution
	web_search fetch_webpage browser_fetch host_exec request_host_access list_host_access host_file_read host_file_write
	host_file_list host_file_copy sandbox_upload_file sandbox_run_python sandbox_read_artifact sandbox_list_artifacts sandbox_close_session`)

var toolWord = regexp.MustCompile(`\b(` + strings.Join(contractTools, "|") + `)\b`)

// missingTools returns the tools that a text names and that are not offered.
func missingTools(text string, offered []tool) []string {
	var missing []string
	for _, name := range toolWord.FindAllString(text, -1) {
		if !slices.ContainsFunc(offered, func(t tool) bool { return t.name == name }) {
			missing = append(missing, name)
		}
	}
	return missing
}

func longFacts(only5 bool) facts {
	hosts := make([]string, 100)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("host-%d.example.com", i)
	}
	most := sandboxmcp.Limits{MaxRAMMB: 65536, MaxCPUCores: 127.5, TimeoutSeconds: 3600, MaxProcesses: 1024, MaxOutputBytes: 64 << 20}
	return newFacts(Told{Limits: most, Ceilings: most, Hosts: hosts, AskPkg: true}, Five{TTL: 525600 * time.Minute, Network: true}, true, only5)
}

// TestInstructionsAreShort: hosts cut instructions at 2,048 characters.
func TestInstructionsAreShort(t *testing.T) {
	for _, only5 := range []bool{false, true} {
		f := longFacts(only5)
		text := f.instructions(f.packages(f.Hosts, true))
		if n := utf8.RuneCountInString(text); n > 1900 {
			t.Errorf("only the five %v: got %d characters at most, want 1,900:\n%s", only5, n, text)
		}
	}
}

// TestOnlyOfferedToolsAreNamed: the instructions and tools/list name no tool that the server lacks.
func TestOnlyOfferedToolsAreNamed(t *testing.T) {
	for _, only5 := range []bool{false, true} {
		f := newFacts(Told{}, Five{}, true, only5)
		offered := toolTable(f)
		if only5 {
			offered = fiveTable(f)
		}
		texts := []string{f.instructions(f.packages(nil, true)), f.instructions(f.packages(nil, false))}
		for _, x := range offered {
			for _, part := range []any{x.description, x.in, x.out} {
				b, err := json.Marshal(part)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, string(b))
			}
		}
		for _, text := range texts {
			if missing := missingTools(text, offered); missing != nil {
				t.Errorf("only the five %v: %v are named and not offered in %s", only5, missing, text)
			}
		}
	}
}

// TestSettingsAreTold: descriptions, defaults and instructions have the settings in force, and
// none of the product's defaults.
func TestSettingsAreTold(t *testing.T) {
	f := newFacts(Told{
		Limits:   sandboxmcp.Limits{MaxRAMMB: 100, MaxCPUCores: 3, TimeoutSeconds: 2, MaxProcesses: 7, MaxOutputBytes: 4321},
		Ceilings: sandboxmcp.Limits{MaxRAMMB: 333, MaxCPUCores: 4, TimeoutSeconds: 44, MaxProcesses: 55, MaxOutputBytes: 66666},
	}, Five{TTL: 7 * time.Minute, MaxCodeBytes: 2048, MaxUploadBytes: 3 << 20, MaxReadBytes: 4 << 20, Limits: sandboxmcp.Limits{TimeoutSeconds: 9, MaxRAMMB: 96}}, false, false)
	whole := f.instructions("")
	five := newFacts(f.Told, f.five, false, true).instructions("")
	for _, x := range toolTable(f) {
		b, err := json.Marshal(x.in)
		if err != nil {
			t.Fatal(err)
		}
		whole += x.description + string(b)
	}
	if wrong := regexp.MustCompile(`.{0,30}\b(60|512|3600|8192|1000000|100 KiB|50 MiB|10 MiB|30 minutes)\b.{0,20}`).FindAllString(whole+five, -1); wrong != nil {
		t.Errorf("got values that are not in force: %q", wrong)
	}
	for _, want := range []string{"Defaults: 2 s, 100 MiB, 3 cores, 7 processes, 4321 bytes", "At most: 44 s, 333 MiB, 4 cores, 55 processes, 66666 bytes", `"default":2`, "default 100, up to 333", "up to 44", "2 KiB", "3 MiB", "4 MiB", "7 minutes", "default 7"} {
		if !strings.Contains(whole, want) {
			t.Errorf("got no %q, want it in the instructions or in tools/list", want)
		}
	}
	if !strings.Contains(five, "9 s and 96 MiB") || !strings.Contains(five, "7 minutes") {
		t.Errorf("got %s, want the limits of the five tools", five)
	}
	if strings.Contains(whole, "download_url or") {
		t.Error("got download_url without an artifact server, want how_to_get alone")
	}
	f.Limits.TimeoutSeconds = 1.5
	if s := timeoutSchema("", f); s.Default != nil || !strings.Contains(s.Description, "1.5") {
		t.Errorf("got the default %s and %q, want 1.5 in the description: an integer cannot have it as default", s.Default, s.Description)
	}
}

// TestNetworkAndSecretsAreTold: what cannot be had is not offered.
func TestNetworkAndSecretsAreTold(t *testing.T) {
	for _, c := range []struct {
		told         Told
		want, absent string
	}{
		{Told{}, "call request_egress", "Open domains"},
		{Told{Hosts: []string{"a.example"}}, "Open domains: a.example.", "none can"},
		{Told{NoAsking: true}, "none can be opened", "request_egress"},
		{Told{NoAsking: true, Hosts: []string{"a.example"}}, "Open domains: a.example. No others can be opened.", "request_egress"},
		{Told{}, "REDACTED", "sandboxmcp setup"},
		{Told{NoSecrets: true}, "execute_code", "REDACTED"},
	} {
		text := newFacts(c.told, Five{}, true, false).instructions("")
		if !strings.Contains(text, c.want) || strings.Contains(text, c.absent) {
			t.Errorf("%+v: want %q and no %q in\n%s", c.told, c.want, c.absent, text)
		}
	}
}

// TestPackagesAreTold: the instructions name the packages that are installed when a client
// connects, and do not wait long for them.
func TestPackagesAreTold(t *testing.T) {
	for _, c := range []struct {
		packages func(context.Context) ([]string, error)
		want     string
	}{
		{func(context.Context) ([]string, error) { return []string{"numpy", "pandas"}, nil }, "Python packages: numpy, pandas."},
		{func(context.Context) ([]string, error) { return nil, nil }, "sandboxmcp setup science"},
		{func(context.Context) ([]string, error) { return nil, errors.New("no Python") }, "list_runtimes names"},
		{func(ctx context.Context) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }, "list_runtimes names"},
	} {
		f := newFacts(Told{Packages: c.packages}, Five{}, true, false)
		for _, text := range []func() string{
			func() string { r := &mcp.InitializeResult{}; f.instruct(t.Context(), r); return r.Instructions },
			func() string { r := &mcp.DiscoverResult{}; f.instruct(t.Context(), r); return r.Instructions },
		} {
			if got := text(); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %q", got, c.want)
			}
		}
	}
}

// TestHintsOfTheFive: the hint of an error does not send the model to a tool that it lacks.
func TestHintsOfTheFive(t *testing.T) {
	s := New(Config{Tools: FiveTools})
	for hint, want := range map[string]string{
		"call get_artifacts with it":    "wait for the run in this session to end",
		"call sandbox_close_session":    "call sandbox_close_session",
		"wait until it has ended":       "wait until it has ended",
		"ask with request_egress first": "wait for the run in this session to end",
	} {
		if got := s.failure("x", sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "busy").WithHint(hint)); got.Hint != want || got.Message != "busy" {
			t.Errorf("%q: got %q, want %q", hint, got.Hint, want)
		}
	}
	all := New(Config{})
	if got := all.failure("x", sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "busy").WithHint("call get_artifacts")); got.Hint != "call get_artifacts" {
		t.Errorf("with all tools: got %q, want the hint as it is", got.Hint)
	}
}
