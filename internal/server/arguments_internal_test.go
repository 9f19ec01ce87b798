package server

import (
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestSchemasThatACheckerDoesNotEnforceAreRefused: a tool cannot announce a rule that its checker
// does not know.
func TestSchemasThatACheckerDoesNotEnforceAreRefused(t *testing.T) {
	one := 1
	for what, s := range map[string]*jsonschema.Schema{
		"a pattern":               input(need("a", &jsonschema.Schema{Type: "string", Pattern: "x"})),
		"a length in a list":      input(need("a", &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", MinLength: &one}})),
		"an alternative":          input(opt("a", &jsonschema.Schema{AnyOf: []*jsonschema.Schema{typed("string")}})),
		"an inner open object":    input(opt("a", output(need("b", typed("string"))))),
		"an inner rule":           input(opt("a", input(need("b", &jsonschema.Schema{Type: "string", Pattern: "x"})))),
		"a rule of values":        input(opt("a", &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Pattern: "x"}})),
		"a rule of the whole":     {Type: "object", Properties: map[string]*jsonschema.Schema{}, MinProperties: &one, AdditionalProperties: input().AdditionalProperties},
		"an object without walls": output(need("a", typed("string"))),
	} {
		if _, err := newChecker("t", s); err == nil {
			t.Errorf("%s: got a checker, want an error", what)
		}
	}
}

// TestArgumentsAreCheckedAgainstTheSchema names the wrong argument, also within another.
func TestArgumentsAreCheckedAgainstTheSchema(t *testing.T) {
	two := 2
	check, err := newChecker("t", input(
		need("code", typed("string")),
		opt("list", &jsonschema.Schema{Type: "array", Items: typed("string"), MaxItems: &two}),
		opt("inner", input(need("b", typed("string")), opt("n", atLeast(typed("integer"), 1)))),
		opt("none", input()),
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arguments, want string }{
		{`{"code":"x","list":["a","b"],"inner":{"b":"y","n":1},"namespace":"n"}`, ""},
		{`[1]`, "arguments is no object"},
		{`{}`, "argument code is missing"},
		{`{"code":null}`, "code is null"},
		{`{"code":"x","z":1,"b":1e999}`, `"b" is unknown`},
		{`{"code":"x","list":1e999}`, "list cannot be decoded"},
		{`{"code":"x","list":["a","b","c"]}`, "list has 3 items"},
		{`{"code":"x","list":["a",1]}`, "list[1] is a number"},
		{`{"code":"x","inner":{}}`, "inner.b is missing"},
		{`{"code":"x","inner":{"b":"y","c":1}}`, `inner["c"] is unknown`},
		{`{"code":"x","inner":{"b":"y","n":0}}`, "inner.n is 0"},
		{`{"code":"x","none":{"a":1}}`, `none["a"] is unknown`},
		{`{"code":"x","namespace":1}`, "namespace is a number"},
	} {
		_, err := check.parse([]byte(c.arguments))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.arguments, err, c.want)
		}
		if err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got %s, want %s", c.arguments, sandboxmcp.CodeOf(err), sandboxmcp.CodeInvalidArgument)
		}
	}
}
