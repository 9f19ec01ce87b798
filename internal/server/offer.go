package server

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// groups are the names by which an operator chooses tools. Every tool is in one group.
var groups = []struct {
	name  string
	tools []string
}{
	{"execution", []string{"execute_code", "install_package", "validate_code", "get_artifacts"}},
	{"sessions", []string{"create_session", "terminate_session", "bridge_data", "inspect_state"}},
	{"monitoring", []string{"list_runtimes", "sandbox_stats", "set_resource_limits"}},
	{"security", []string{"request_egress", "audit_execution"}},
	{"web", []string{"web_search", "fetch_webpage", "browser_fetch"}},
	{"host", []string{"host_exec", "request_host_access", "list_host_access", "host_file_read", "host_file_write", "host_file_list", "host_file_copy"}},
	{"files", []string{"sandbox_upload_file", "sandbox_run_python", "sandbox_read_artifact", "sandbox_list_artifacts", "sandbox_close_session"}},
}

// CheckTools fails if a word is neither the name of a group of tools nor of a tool.
func CheckTools(words []string) error {
	var known []string
	for _, g := range groups {
		known = append(known, g.name)
		if slices.Contains(words, g.name) {
			words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == g.name })
		}
		words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(g.tools, w) })
	}
	if len(words) == 0 {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is no tool and no group of tools", sandboxmcp.Quote(words[0])).
		WithHint("name tools, or the groups " + strings.Join(known, ", "))
}

// choose returns the tools that the operator has chosen, by group or by name. Without words
// these are all. readOnly leaves those that change nothing.
func choose(all []tool, words []string, readOnly bool) []tool {
	return slices.DeleteFunc(slices.Clone(all), func(t tool) bool {
		if readOnly && !t.hints.readOnly {
			return true
		}
		return len(words) > 0 && !slices.Contains(words, t.name) && !slices.Contains(words, groupOf(t.name))
	})
}

func groupOf(name string) string {
	for _, g := range groups {
		if slices.Contains(g.tools, name) {
			return g.name
		}
	}
	return ""
}

// offer removes what texts for models say about tools that a server lacks.
type offer struct {
	lacking []string       // the tools that the server lacks
	missing *regexp.Regexp // names of tools; nil: the server has all
}

// has reports whether the server has a tool.
func (o offer) has(tool string) bool { return !slices.Contains(o.lacking, tool) }

// any reports whether the server has a tool of the groups.
func (o offer) any(names ...string) bool {
	for _, g := range groups {
		if slices.Contains(names, g.name) && slices.ContainsFunc(g.tools, o.has) {
			return true
		}
	}
	return false
}

func newOffer(tools []tool) offer {
	var names []string
	for _, g := range groups {
		for _, name := range g.tools {
			if !slices.ContainsFunc(tools, func(t tool) bool { return t.name == name }) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return offer{}
	}
	return offer{names, regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)}
}

// all reports whether a text names no tool that the server lacks.
func (o offer) all(text string) bool { return o.missing == nil || !o.missing.MatchString(text) }

// sentence matches a sentence of a text, with the space after it.
var sentence = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s).+?(?:[.!?](?:\s+|$)|\n+|$)`) })

// text returns a text without the sentences that name a tool that the server lacks.
func (o offer) text(text string) string {
	if o.all(text) {
		return text
	}
	var b strings.Builder
	for _, s := range sentence().FindAllString(text, -1) {
		if o.all(s) {
			b.WriteString(s)
		} else if strings.HasSuffix(s, "\n") && !strings.HasSuffix(b.String(), "\n") {
			b.WriteString("\n")
		}
	}
	return strings.TrimSpace(b.String())
}

// schema cuts the descriptions of a schema.
func (o offer) schema(s *jsonschema.Schema) {
	if s == nil || o.missing == nil {
		return
	}
	s.Description = o.text(s.Description)
	for _, p := range s.Properties {
		o.schema(p)
	}
	o.schema(s.Items)
}

// tool cuts the texts of a tool.
func (o offer) tool(t tool) tool {
	if t.alone != "" && !o.all(t.description) {
		t.description = t.alone
	}
	t.description = o.text(t.description)
	o.schema(t.in)
	o.schema(t.out)
	return t
}
