package server

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// served returns a server of some tools.
func served(told Told, readOnly bool, only ...string) *Server {
	return New(Config{Only: only, ReadOnly: readOnly, Rules: Rules{Told: told}})
}

// instructed returns the instructions of a server that knows its packages.
func instructed(s *Server) string {
	f := s.rules().facts
	return f.instructions(f.packages(nil, true))
}

// subsets are choices of tools: all, each group, and each tool.
func subsets() (all [][]string) {
	all = [][]string{nil}
	for _, g := range groups {
		all = append(all, []string{g.name})
		for _, tool := range g.tools {
			all = append(all, []string{tool})
		}
	}
	return all
}

// pairs are tools beside those that run programs, of which texts speak together.
func pairs() (all [][]string) {
	for _, g := range groups {
		for _, tool := range g.tools {
			all = append(all, []string{"execute_code", tool}, []string{"sandbox_run_python", tool})
		}
	}
	return all
}

// TestSubsetsNameOnlyTheirTools: whichever tools are offered, no text that a model reads names
// another one, and the engine learns which ones the reader lacks.
func TestSubsetsNameOnlyTheirTools(t *testing.T) {
	for _, c := range []struct {
		told     Told
		readOnly bool
		choices  [][]string
	}{
		{Told{}, false, slices.Concat(subsets(), pairs())},
		{Told{}, true, subsets()},
		{Told{NoAsking: true, NoInstall: true}, false, subsets()},
		{Told{AskPkg: true, Hosts: []string{"a.example"}, Host: true}, false, subsets()},
	} {
		for _, only := range c.choices {
			namesOnlyItsTools(t, served(c.told, c.readOnly, only...))
		}
	}
}

func namesOnlyItsTools(t *testing.T, s *Server) {
	t.Helper()
	f := s.rules().facts
	var offered []tool
	texts := []string{instructed(s), f.instructions(f.packages([]string{"numpy"}, true)), f.instructions(f.packages(nil, false))}
	for name, o := range s.rules().tools {
		offered = append(offered, tool{name: name})
		texts = append(texts, string(o.text))
	}
	for _, row := range sandboxmcp.CodeRows() {
		texts = append(texts, s.failure("x", sandboxmcp.Errorf(row.Code, "x")).Hint)
	}
	for _, text := range texts {
		if missing := missingTools(text, offered); missing != nil {
			t.Errorf("%v, read-only %v, %+v: %v are named and not offered in %s", s.only, s.readOnly, f.Told, missing, text)
		}
	}
	if got := len(f.lacking) + len(offered); got != len(contractTools) {
		t.Errorf("%v: got %d tools that are offered or lacking, want %d", s.only, got, len(contractTools))
	}
}

// dangling are beginnings of sentences whose subject stands in a sentence before.
var dangling = regexp.MustCompile(`(?m)^(?:Without it|If pending|Values show|Above|It |Others)`)

// TestInstructionsOfGroups: each choice of tools is told what holds for it, in whole sentences.
func TestInstructionsOfGroups(t *testing.T) {
	const (
		sets, files, failed, limits, network, pass = "setup science", "/mnt/data", "failed: the program", "Defaults: ", "network", "pass on how_to_approve"
	)
	for _, c := range []struct {
		only     string
		readOnly bool
		must     []string
		mustNot  []string
	}{
		{"", false, []string{"Runs Python, Node.js and shell", "Without session_id every run is new.", sets, files, "No other network until a person opens a domain: call request_egress", pass, "background: true", limits, failed}, []string{"sandboxmcp egress"}},
		{"execution", false, []string{"Runs Python, Node.js and shell", "(any id that you choose)", "until 30 minutes without use", "install_package gets others", "background: true", "No other network until the user opens a domain with `sandboxmcp egress DOMAIN`", limits, failed}, []string{pass, "session_id, or"}},
		{"execute_code", false, []string{"(any id that you choose)", "execute_code gets others by its argument packages", sets, files, "`sandboxmcp egress DOMAIN`", limits, failed}, []string{"background: true", pass}},
		{"files", false, []string{"Runs Python programs in a sandbox.", "sandbox_run_python is for Python on files of sandbox_upload_file: its sessions keep files, not variables.", "Programs have no network.", sets, files, "A run may take 60 s and 512 MiB.", "read exit_code and stderr"}, []string{"execute_code", "background", "how_to_get", pass, failed}},
		{"sessions", false, []string{"No tool here runs a program", limits, "bridge_data passes values"}, []string{sets, files, network, failed, "REDACTED"}},
		{"monitoring", false, []string{"No tool here runs a program"}, []string{sets, files, network, limits, failed, "REDACTED"}},
		{"security", false, []string{"No tool here runs a program", "request_egress asks a person to open a domain to programs. If pending, pass on how_to_approve"}, []string{sets, files, "retries", limits, failed, "REDACTED"}},
		{"web", false, []string{"Reads the public web.", "No tool here runs a program"}, []string{sets, files, network, limits, failed, "REDACTED", "Shows and manages"}},
		{"host", false, []string{"Works on the machine of the server, as far as a person allows it."}, []string{sets, files, network, limits, failed, "REDACTED", "Shows and manages"}},
		{"", true, []string{"No tool here runs a program", "sandbox_read_artifact reads a file"}, []string{sets, files, network, limits, failed, "REDACTED", pass}},
	} {
		got := instructed(served(Told{}, c.readOnly, strings.Fields(c.only)...))
		for _, want := range append(c.must, "A failed call has error, message and hint.") {
			if !strings.Contains(got, want) {
				t.Errorf("%q, read-only %v: got no %q, want it in\n%s", c.only, c.readOnly, want, got)
			}
		}
		for _, no := range c.mustNot {
			if strings.Contains(got, no) {
				t.Errorf("%q, read-only %v: got %q, want it not in\n%s", c.only, c.readOnly, no, got)
			}
		}
	}
	for _, only := range slices.Concat(subsets(), pairs()[:20]) {
		for _, readOnly := range []bool{false, true} {
			got := instructed(served(Told{}, readOnly, only...))
			if n := utf8.RuneCountInString(got); n > 1900 || n < 40 {
				t.Errorf("%v: got %d characters, want 40 to 1,900", only, n)
			}
			for line := range strings.Lines(strings.TrimSpace(got)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasSuffix(line, ".") {
					t.Errorf("%v, read-only %v: got the line %q, want whole sentences", only, readOnly, line)
				}
			}
			if torn := dangling.FindString(got); torn != "" && torn != "Above" {
				t.Errorf("%v, read-only %v: got a line that begins with %q:\n%s", only, readOnly, torn, got)
			}
		}
	}
}

// TestPackagePolicyIsTold: models are told of packages what the setting lets them do.
func TestPackagePolicyIsTold(t *testing.T) {
	for _, c := range []struct {
		told     Told
		only     []string
		want, no string
	}{
		{Told{}, nil, "install_package gets others.", "approves"},
		{Told{AskPkg: true}, nil, "install_package gets others if a person approves.", "can be installed"},
		{Told{NoInstall: true}, nil, "No others can be installed.", "gets others"},
		{Told{NoInstall: true}, []string{"execute_code"}, "No others can be installed.", "gets others"},
	} {
		for _, names := range [][]string{nil, {"numpy"}} {
			f := served(c.told, false, c.only...).rules().facts
			got := f.packages(names, true)
			if !strings.Contains(got, c.want) || strings.Contains(got, c.no) {
				t.Errorf("%+v, %v with %v: got %q, want %q and no %q", c.told, c.only, names, got, c.want, c.no)
			}
		}
	}
}

// TestDescriptionsOfSubsetsAreWhole: a tool that is offered without others still says what it does.
func TestDescriptionsOfSubsetsAreWhole(t *testing.T) {
	all := served(Told{}, false).rules().tools
	verb := regexp.MustCompile(`^[A-Z][a-z]+s `) // such as Runs
	for _, readOnly := range []bool{false, true} {
		for _, only := range subsets() {
			for name, o := range served(Told{}, readOnly, only...).rules().tools {
				if got := o.tool.Description; !verb.MatchString(got) && got != all[name].tool.Description {
					t.Errorf("%v, read-only %v: got the description %q of %s, want what it does", only, readOnly, got, name)
				}
			}
		}
	}
}

// TestUnknownPackagesAreTold: what can be installed is also told if the packages that are there are
// not known in time.
func TestUnknownPackagesAreTold(t *testing.T) {
	for _, c := range []struct {
		told Told
		only []string
		want string
	}{
		{Told{}, nil, "list_runtimes names the Python packages. install_package gets others.\n"},
		{Told{}, []string{"execute_code"}, "execute_code gets packages by its argument packages.\n"},
		{Told{NoInstall: true}, []string{"execute_code"}, "No packages can be installed.\n"},
		{Told{}, []string{"sandbox_run_python"}, ""},
	} {
		f := served(c.told, false, c.only...).rules().facts
		if got := f.packages(nil, false); got != c.want {
			t.Errorf("%+v, %v: got %q, want %q", c.told, c.only, got, c.want)
		}
	}
}

// TestCommandsOfInstructionsCanBePasted: commands name the program and the state directory.
func TestCommandsOfInstructionsCanBePasted(t *testing.T) {
	how := sandboxmcp.Invocation{Program: "/opt/x/sandboxmcp", StateDir: "/srv/my state"}
	s := New(Config{Only: []string{"execute_code"}, Invocation: how})
	got := instructed(s)
	for _, command := range []string{"setup science", "egress DOMAIN"} {
		if want := "`" + how.Line(command) + "`"; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
}

// TestTheWordOfAClosedDomainDependsOnTheSettings: execute_code does not send a model to a tool that
// can only deny.
func TestTheWordOfAClosedDomainDependsOnTheSettings(t *testing.T) {
	for _, c := range []struct {
		told Told
		only []string
		want bool
	}{{Told{}, nil, true}, {Told{NoAsking: true}, nil, false}, {Told{}, []string{"execute_code"}, false}} {
		text, err := json.Marshal(served(c.told, false, c.only...).rules().tools["execute_code"].tool.Description)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(text), "see request_egress"); got != c.want || !strings.Contains(string(text), "Programs reach open domains only") {
			t.Errorf("%+v, %v: got %s, want that open domains alone are reached, and request_egress named: %v", c.told, c.only, text, c.want)
		}
	}
	if slices.Contains(served(Told{}, false).rules().facts.lacking, "execute_code") {
		t.Error("got execute_code as lacking, want it offered")
	}
}
