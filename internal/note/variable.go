package note

import (
	"regexp"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// What programs print if a variable of the environment is missing. The name is the first group.
var (
	unsetPython = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`File "(?:<frozen os>|[^"\n]*/os\.py)", line \d+, in __getitem__`)
	})
	unsetShell = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)\b([A-Z][A-Z0-9_]+): (?:unbound variable|parameter (?:null or )?not set)$`)
	})
	unsetNode  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`process\.env(?:\.|\[['"])([A-Z][A-Z0-9_]+)\b`) })
	undefined  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Cannot read propert(?:y|ies) .*of undefined`) })
	quotedName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^['"]([A-Z][A-Z0-9_]+)['"]$`) })
)

// Variable returns the name of the environment variable whose absence has ended a program; empty:
// none has.
func Variable(res *sandboxmcp.Result) string {
	if res.Status != sandboxmcp.StatusFailed {
		return ""
	}
	var found []string
	text, e := tail(res.Stderr), res.Error
	switch {
	case res.Language == sandboxmcp.Shell:
		found = unsetShell().FindStringSubmatch(text)
	case e == nil:
	case e.Name == MissingKey && (unsetPython().MatchString(text) || slices.ContainsFunc(e.Traceback, unsetPython().MatchString)):
		found = quotedName().FindStringSubmatch(e.Value)
	case e.Name == "TypeError" && res.Language == sandboxmcp.Node && undefined().MatchString(e.Value):
		if all := unsetNode().FindAllStringSubmatch(text, 2); len(all) == 1 { // of several names, which one is missing is not known
			found = all[0]
		}
	}
	if found == nil {
		return ""
	}
	return found[1]
}

// unset explains a variable that is neither in the environment nor in the vault.
func (r *Run) unset() string {
	if r.Unset == "" {
		return ""
	}
	text := r.Unset + " is not in the environment, and the vault has no key of that name."
	if r.Sealed {
		text += " The user can add it with `sandboxmcp vault add " + r.Unset + "`"
		if r.Reader == sandboxmcp.ReaderPython && r.Has("execute_code") {
			text += ", for programs of execute_code"
		}
		text += "."
	}
	return text
}
