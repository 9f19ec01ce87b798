package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

// What two readers could take for two receipts, or two results, is refused, however
// good the signature is.
func TestReceiptsThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	state := t.TempDir()
	key, err := sign.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	hash := strings.Repeat("ab", 32)
	receipt, err := key.Receipt(sign.Statement{Predicate: sandboxmcp.ReceiptPredicate{
		RequestID: "r", Namespace: "default", Language: sandboxmcp.Python, Status: sandboxmcp.StatusCompleted, CodeSHA256: hash, StdoutSHA256: hash, StderrSHA256: hash,
	}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(receipt)
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	with := func(members string) string { return strings.TrimSuffix(good, "}") + "," + members + "}" }
	result := func(members string) string { return `{"receipt":` + good + members + `}` }
	for what, tt := range map[string]struct {
		text, says string // what the refusal says; empty: it verifies
	}{
		"a receipt":                      {good, ""},
		"a receipt with blanks":          {"\n " + good + " \n", ""},
		"a result":                       {result(`,"status":"completed","metadata":{"a":1,"A":2},"results":["😀"]`), ""},
		"a member beside":                {with(`"stdout":"42"`), "member \"stdout\""},
		"a member of another case":       {with(`"Payload":"x"`), "member \"Payload\""},
		"a receipt that is null beside":  {with(`"receipt":null`), "member \"receipt\""},
		"text after the value":           {good + `{"stdout":"42"}`, "text after the value"},
		"a word after the value":         {good + " x", "text after the value"},
		"two receipts":                   {good + good, "text after the value"},
		"a doubled name":                 {with(`"payload":"x"`), "twice"},
		"a name doubled by an escape":    {with(`"p\u0061yload":"x"`), "twice"},
		"a doubled name below":           {result(`,"isolation":{"tier":"L1","tier":"L3"}`), "twice"},
		"a doubled name in a list":       {result(`,"results":[{"a":{"b":1,"b":2}}]`), "twice"},
		"a doubled receipt":              {result(`,"receipt":null`), "twice"},
		"a receipt beside a receipt":     {result(`,"payload":"x"`), "beside a receipt"},
		"a member in a signature":        {strings.Replace(good, `"sig":`, `"x":1,"sig":`, 1), "member \"x\""},
		"a member in a result's":         {`{"receipt":` + with(`"x":1`) + `}`, "member \"x\""},
		"another case in a result":       {result(`,"STDOUT":"42"`), "some readers take"},
		"a letter that folds to another": {result(`,"ſtdout":"42"`), "some readers take"},
		"such a letter, escaped":         {result(`,"\u017ftatus":"failed"`), "some readers take"},
		"such a letter in a file":        {result(`,"artifacts":[{"ſha256":"x"}]`), "some readers take"},
		"two cases in a result":          {result(`,"Extra":1,"extra":2`), "some readers take"},
		"another case of a file":         {result(`,"artifacts":[{"SHA256":"x"}]`), "some readers take"},
		"bytes that are no UTF-8":        {result(",\"x\":\"\xff\""), "UTF-8"},
		"half a character":               {result(`,"stdout":"\ud800"`), "half a character"},
		"the other half":                 {result(`,"stdout":"\udc00x"`), "half a character"},
		"half and an escape":             {result(`,"stdout":"\ud83d\u0041"`), "half a character"},
		"a character of two halves":      {result(`,"metadata":{"x":"\ud83d\ude00\\ud800"}`), ""},
		"a member that no result has":    {result(`,"x":1`), "member \"x\""},
		"a list":                         {"[" + good + "]", "plain JSON"},
		"nothing":                        {"", "plain JSON"},
		"half":                           {good[:len(good)/2], "plain JSON"},
		"deep":                           {strings.Repeat("[", 100_000), "nested deeper"},
		"deep in a result":               {result(`,"x":` + strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)), "nested deeper"},
	} {
		p := filepath.Join(t.TempDir(), "receipt.json")
		if err := os.WriteFile(p, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := (&fake{}).cli(t.Context(), t, []string{"SANDBOXMCP_STATE_DIR=" + state}, "verify", "--receipt", p)
		switch {
		case tt.says == "" && got.status == 0 && strings.HasPrefix(got.stdout, "VERIFIED\n"):
		case tt.says != "" && got.status == 2 && got.stdout == "" && strings.Contains(got.stderr, tt.says):
		default:
			t.Errorf("%s: got %+v, want %q", what, got, tt.says)
		}
	}
}

// A command that finds a FIFO, a device or a directory in place of a file fails at once and
// says so, both for files that the operator names and for those in the state directory.
func TestWhatIsNoRegularFileIsRefusedAtOnce(t *testing.T) {
	good := func(t *testing.T) (state, file string) {
		t.Helper()
		state = t.TempDir()
		if _, err := sign.Open(state); err != nil {
			t.Fatal(err)
		}
		file = filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		return state, file
	}
	type command func(state, file, odd string) (env, args []string)
	named := func(args ...string) command {
		return func(_, _, odd string) ([]string, []string) {
			list := []string{}
			for _, a := range args {
				list = append(list, strings.ReplaceAll(a, "ODD", odd))
			}
			return nil, list
		}
	}
	withDatabase := func(args ...string) command {
		return func(state, _, _ string) ([]string, []string) {
			if err := os.WriteFile(filepath.Join(state, "sandboxmcp.db"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return nil, args
		}
	}
	kinds := map[string]func(path string) error{
		"FIFO":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"device":    func(p string) error { return os.Symlink("/dev/zero", p) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
	}
	for what, tt := range map[string]struct {
		in  string // name in the state directory; empty: a file of the operator's
		run command
	}{
		"receipt": {"", named("verify", "--receipt", "ODD")},
		"key of a receipt": {"", func(_, file, odd string) ([]string, []string) {
			return nil, []string{"verify", "--receipt", file, "--key", odd}
		}},
		"file":             {"", named("verify", "ODD", strings.Repeat("0", 64))},
		"settings":         {"", named("--config", "ODD", "config")},
		"key of the audit": {"", named("audit", "verify", "--key", "ODD")},
		"second place":     {"", named("audit", "verify", "--checkpoints", "ODD")},
		"second place as set": {"", func(_, _, odd string) ([]string, []string) {
			return []string{"SANDBOXMCP_AUDIT_CHECKPOINT_FILE=" + odd}, []string{"audit", "verify"}
		}},
		"database as set": {"", func(_, _, odd string) ([]string, []string) {
			return []string{"SANDBOXMCP_SQLITE_PATH=" + odd}, []string{"audit", "verify"}
		}},
		"database":             {"sandboxmcp.db", named("audit", "verify")},
		"journal":              {"sandboxmcp.db-journal", withDatabase("audit", "verify")},
		"log":                  {"sandboxmcp.db-wal", withDatabase("audit", "verify")},
		"index of the log":     {"sandboxmcp.db-shm", withDatabase("audit", "verify")},
		"newest checkpoint":    {"sandboxmcp.head", named("audit", "verify")},
		"public key":           {sign.PublicFile, named("audit", "verify")},
		"public key, receipt":  {sign.PublicFile, func(_, file, _ string) ([]string, []string) { return nil, []string{"verify", "--receipt", file} }},
		"lock of package sets": {"", named("setup", "science", "--lock", "ODD")},
	} {
		for kind, make := range kinds {
			state, file := good(t)
			odd := filepath.Join(t.TempDir(), "odd")
			if tt.in != "" {
				odd = filepath.Join(state, tt.in)
				_ = os.Remove(odd)
			}
			if err := make(odd); err != nil {
				t.Fatal(err)
			}
			env, args := tt.run(state, file, odd)
			got := (&fake{}).cli(t.Context(), t, append(env, "SANDBOXMCP_STATE_DIR="+state), args...)
			if got.status == 0 || !strings.Contains(got.stderr, "not a regular file") && !strings.Contains(got.stderr, "not_found") || got.stdout != "" {
				t.Errorf("%s is a %s: got %+v, want a refusal that says it is not a regular file", what, kind, fmt.Sprintf("%+v", got))
			}
		}
	}
}
