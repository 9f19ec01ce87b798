package config_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestSchemaAndFileAgree: what the schema says of a file, the program says too.
func TestSchemaAndFileAgree(t *testing.T) {
	text, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err = json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatalf("the schema, or a default: %v", err)
	}
	for _, r := range config.Rows() {
		if p := schema.Properties[r.Key]; r.Key != "" && (p == nil || !strings.Contains(p.Description, r.Doc)) {
			t.Errorf("%s: got %v, want its documentation", r.Key, p)
		}
	}
	check := func(key string, v any, want bool) {
		t.Helper()
		doc := map[string]any{key: v}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		bySchema := resolved.Validate(doc)
		byFile := config.Check(file(t, string(text)), []string{home})
		if (bySchema == nil) != want || (len(byFile) == 0) != want {
			t.Errorf("%s: got %v by the schema and %v by the program, want accepted %v", text, bySchema, byFile, want)
		}
	}
	for key, p := range schema.Properties {
		if p.Default != nil {
			var v any
			if err := json.Unmarshal(p.Default, &v); err != nil {
				t.Fatal(err)
			}
			check(key, v, true)
		}
		check(key, map[string]any{"a": 1}, false)
		switch {
		case p.Type == "integer", p.Type == "number":
			check(key, *p.Maximum, true)
			check(key, *p.Maximum+1, false)
			check(key, "many", false)
			check(key, -1, false)
		case p.Type == "array":
			check(key, "x", false)
		case p.Enum != nil:
			check(key, "neither", false)
			check(key, []any{"a"}, false)
		}
	}
	check("timeout_secs", 5, false)
	check("test", true, false)
	check("egress_test_dns", "127.0.0.1:53", false)
}

// TestCheckNamesEachFault of a file, with its place.
func TestCheckNamesEachFault(t *testing.T) {
	path := file(t, "timeout_seconds: soon\n\ntimeout_secs: 6\nallowed_domains:\n  - a.example\nhardened:\n  deep: 1\n")
	var got []string
	for _, err := range config.Check(path, []string{home, "SANDBOXMCP_MAX_RAM_MB=no"}) {
		got = append(got, strings.TrimPrefix(err.Error(), "invalid_argument: "+path))
	}
	want := []string{`:1:18: timeout_seconds is "soon"`, `:3:1: unknown setting "timeout_secs"`, `:7:3: hardened is a nested value`}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	if faults := config.Check(file(t, "max_ram_mb: 9000\nceiling_ram_mb: 100\n"), []string{home}); len(faults) != 1 {
		t.Errorf("above its ceiling: got %v, want one fault", faults)
	}
	if faults := config.Check(file(t, "timeout_seconds: 5 # fine\n"), []string{home}); len(faults) != 0 {
		t.Errorf("a good file: got %v, want no fault", faults)
	}
	if faults := config.Check(os.DevNull, []string{home}); len(faults) != 1 {
		t.Errorf("a device: got %v, want one fault", faults)
	}
}
