package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// openDocument is what the tests read of the OpenAPI document.
type openDocument struct {
	OpenAPI    string
	Paths      map[string]map[string]openOperation
	Components struct {
		Schemas map[string]*jsonschema.Schema
	}
	text string
}

type openOperation struct {
	OperationID string
	Parameters  []struct {
		Name, In string
		Schema   *jsonschema.Schema
	}
	RequestBody *struct {
		Content map[string]struct {
			Schema  *jsonschema.Schema
			Example json.RawMessage
		}
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema *jsonschema.Schema }
	}
}

func document(t *testing.T) openDocument {
	t.Helper()
	text, err := api.OpenAPI("v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	d := openDocument{text: string(text)}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// operation returns the operation of a pattern.
func (d openDocument) operation(pattern string) openOperation {
	method, path, _ := strings.Cut(pattern, " ")
	return d.Paths[path][strings.ToLower(method)]
}

// schema follows a reference.
func (d openDocument) schema(s *jsonschema.Schema) *jsonschema.Schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return d.Components.Schemas[name]
	}
	return s
}

// check compares an answer with the schema of its route.
func (d openDocument) check(pattern string, answer []byte) error {
	return fitsJSON(d.schema(d.operation(pattern).Responses["200"].Content["application/json"].Schema), answer)
}

func (d openDocument) checkSchema(name string, answer []byte) error {
	return fitsJSON(d.Components.Schemas[name], answer)
}

// fits reports how a Go value departs from a schema once it is JSON.
func fits(s *jsonschema.Schema, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return fitsJSON(s, data)
}

func fitsJSON(s *jsonschema.Schema, data []byte) error {
	if s == nil {
		return fmt.Errorf("there is no schema")
	}
	resolved, err := s.CloneSchemas().Resolve(nil)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	return resolved.Validate(v)
}

// TestTheDocumentHasEveryRoute: and no other, each with an id of its own.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	d := document(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("got version %q of OpenAPI, want 3.1", d.OpenAPI)
	}
	var got, want []string
	ids := map[string]string{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			pattern := strings.ToUpper(method) + " " + path
			got = append(got, pattern)
			if other := ids[op.OperationID]; other != "" || op.OperationID == "" {
				t.Errorf("%s: got the id %q, which %q has too; want one of its own", pattern, op.OperationID, other)
			}
			ids[op.OperationID] = pattern
		}
	}
	for _, r := range api.RESTRoutes() {
		want = append(want, r.Pattern)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("got other operations than there are routes (-want +got):\n%s", diff)
	}
}

var reference = regexp.MustCompile(`"\$ref": "([^"]*)"`)

// TestReferencesOfTheDocumentLeadSomewhere: each names a schema, and each schema is named.
func TestReferencesOfTheDocumentLeadSomewhere(t *testing.T) {
	d := document(t)
	unused := maps.Clone(d.Components.Schemas)
	refs := reference.FindAllStringSubmatch(d.text, -1)
	if len(refs) < 30 {
		t.Errorf("got %d references, want 30 at least", len(refs))
	}
	for _, m := range refs {
		name := strings.TrimPrefix(m[1], "#/components/schemas/")
		if d.Components.Schemas[name] == nil {
			t.Errorf("got the reference %s, want one to a schema", m[1])
		}
		delete(unused, name)
	}
	for name := range unused {
		t.Errorf("got the schema %s without a reference, want one", name)
	}
}

// TestTheDocumentSaysWhatIsDecoded: parameters and fields are those that the server takes, and
// each example fits its schema.
func TestTheDocumentSaysWhatIsDecoded(t *testing.T) {
	d := document(t)
	for _, r := range api.RESTRoutes() {
		op := d.operation(r.Pattern)
		var got, want []string
		for _, p := range op.Parameters {
			if p.Name != "X-Tenant-Id" {
				got = append(got, p.In+" "+p.Name)
			}
			if p.Schema == nil {
				t.Errorf("%s: got no schema for %s, want one", r.Pattern, p.Name)
			}
		}
		hasBody := false
		if r.In != nil {
			for f := range r.In.Fields() {
				where := placesOf(f)[0]
				if where == "body" {
					hasBody = true
					continue
				}
				want = append(want, where+" "+f.Tag.Get(where))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: got other parameters (-want +got):\n%s", r.Pattern, diff)
		}
		if hasBody != (op.RequestBody != nil) {
			t.Errorf("%s: got the body %v, want one: %v", r.Pattern, op.RequestBody, hasBody)
		}
		if op.RequestBody == nil {
			continue
		}
		c := op.RequestBody.Content["application/json"]
		s := d.schema(c.Schema)
		if err := fitsJSON(s, c.Example); err != nil {
			t.Errorf("%s: got an example that its schema refuses: %v", r.Pattern, err)
		}
		if err := fitsJSON(s, []byte(`{"no_such_field":1}`)); err == nil {
			t.Errorf("%s: got a schema that takes any field, want it closed", r.Pattern)
		}
	}
}

// TestTheSchemaOfABodyAndItsDecoderAgree: what the one refuses, the other does.
func TestTheSchemaOfABodyAndItsDecoderAgree(t *testing.T) {
	d := document(t)
	for _, c := range []struct {
		pattern, body string
		good          bool
	}{
		{"POST /execute", `{"code":"x","max_cpu_cores":0.5,"env":{"A":"b"},"allowed_domains":["a.example.com"]}`, true},
		{"POST /execute", `{"language":"python"}`, false},
		{"POST /execute", `{"code":"x","max_cpu_cores":0}`, false},
		{"POST /execute", `{"code":"x","max_ram_mb":0}`, false},
		{"POST /execute", `{"code":"x","env":{"A":1}}`, false},
		{"POST /execute", `{"code":"x","language":""}`, false},
		{"POST /sessions", `{"ttl_minutes":10080,"limits":{"max_processes":1}}`, true},
		{"POST /sessions", `{"ttl_minutes":10080.5}`, false},
		{"POST /sessions", `{"limits":{"colour":1}}`, false},
		{"POST /approvals/{id}", `{"decision":"deny","scope":"session","session_id":"s"}`, true},
		{"POST /approvals/{id}", `{"decision":"perhaps"}`, false},
		{"POST /approvals/{id}", `{"decision":"approve","scope":"forever"}`, false},
		{"POST /vault", `{"key":"K","value":"v","ttl_seconds":0}`, false},
	} {
		err := fitsJSON(d.schema(d.operation(c.pattern).RequestBody.Content["application/json"].Schema), []byte(c.body))
		method, target, _ := example(api.RouteInfo{Pattern: c.pattern})
		w := send(t, rest(t, answering(), operator), method, target, c.body)
		if (err == nil) != c.good || (w.Code == 200) != c.good {
			t.Errorf("%s %s: the schema says %v, the server %d %s; want them to take it: %v", c.pattern, c.body, err, w.Code, w.Body, c.good)
		}
	}
}
