package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// arguments are the checked arguments of a call. All of them are known and have the types
// of the schema. Defaults are not filled in, because the engine applies them.
type arguments map[string]any

func (a arguments) text(name string) string    { v, _ := a[name].(string); return v }
func (a arguments) flag(name string) bool      { v, _ := a[name].(bool); return v }
func (a arguments) number(name string) float64 { v, _ := a[name].(float64); return v }
func (a arguments) whole(name string) int      { return int(a.number(name)) }

// flagOr returns a boolean argument, or absent if it was not given.
func (a arguments) flagOr(name string, absent bool) bool {
	if v, ok := a[name].(bool); ok {
		return v
	}
	return absent
}

// texts returns an object of strings, or nil if it was not given.
func (a arguments) texts(name string) map[string]string {
	m, ok := a[name].(map[string]any)
	if !ok {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k], _ = v.(string)
	}
	return out
}

// words returns the strings of a list that was checked to have only strings.
func words(list []any) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		text, _ := v.(string)
		out = append(out, text)
	}
	return out
}

// session returns the session id in an argument. It returns "" if the argument is absent or
// null.
func (a arguments) session(name string) (sandboxmcp.SessionID, error) {
	if v, ok := a[name].(string); ok {
		return sandboxmcp.ParseSessionID(v)
	}
	return "", nil
}

// limits returns the limits in the arguments. A limit that was not given is 0.
func (a arguments) limits() sandboxmcp.Limits {
	return sandboxmcp.Limits{
		MaxRAMMB:       a.whole("max_ram_mb"),
		MaxCPUCores:    a.number("max_cpu_cores"),
		TimeoutSeconds: a.number("timeout_seconds"),
		MaxProcesses:   a.whole("max_processes"),
		MaxOutputBytes: int64(a.number("max_output_bytes")),
	}
}

// maxWhole is the largest n for which float64 represents all whole numbers up to n exactly.
const maxWhole = 1 << 53

// checker validates the arguments of one tool against its input schema. Its errors name the
// argument and repeat only a short part of its value.
type checker struct {
	tool   string
	schema *jsonschema.Schema
}

// newChecker fails if the schema has a keyword that a checker does not enforce.
func newChecker(tool string, s *jsonschema.Schema) (*checker, error) {
	if _, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true}); err != nil {
		return nil, err
	}
	if !enforced(s) {
		return nil, errors.New("a checker does not enforce all its keywords")
	}
	return &checker{tool, s}, nil
}

// enforced reports whether a checker enforces every keyword of a schema.
func enforced(s *jsonschema.Schema) bool {
	if s == nil {
		return true
	}
	rest := *s
	if s.Properties != nil || s.PropertyOrder != nil || s.Required != nil {
		if !reflect.DeepEqual(s.AdditionalProperties, input().AdditionalProperties) {
			return false
		}
		for _, p := range s.Properties {
			if !enforced(p) {
				return false
			}
		}
		rest.Properties, rest.PropertyOrder, rest.Required, rest.AdditionalProperties = nil, nil, nil, nil
	}
	rest.Type, rest.Types, rest.Enum, rest.Items, rest.MaxItems = "", nil, nil, nil, nil
	rest.Minimum, rest.ExclusiveMinimum, rest.Maximum = nil, nil, nil
	rest.Description, rest.Default = "", nil // restrict nothing
	of := rest.AdditionalProperties
	rest.AdditionalProperties = nil
	return reflect.DeepEqual(rest, jsonschema.Schema{}) && enforced(s.Items) && enforced(of)
}

func invalid(format string, args ...any) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, format, args...)
}

// parse decodes and checks arguments. Every tool accepts "namespace", even if its schema
// does not have it.
func (c *checker) parse(raw json.RawMessage) (arguments, error) {
	var args arguments
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, c.undecoded(raw)
		}
	}
	if unknown := slices.DeleteFunc(slices.Collect(maps.Keys(args)), c.knows); len(unknown) > 0 {
		return nil, invalid("argument %s is unknown; %s", sandboxmcp.Quote(slices.Min(unknown)), c.known())
	}
	for _, name := range c.schema.Required {
		if _, ok := args[name]; !ok {
			return nil, invalid("argument %s is missing", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		v, s := args[name], c.schema.Properties[name]
		if s == nil {
			s = typed("string")
		}
		if text, _ := v.(string); text != "" && name == "language" { // other names of a language are accepted
			if l, err := sandboxmcp.ParseLanguage(text); err == nil {
				v = string(l)
			}
		}
		if err := checkValue(name, v, s); err != nil {
			return nil, err
		}
		args[name] = v
	}
	return args, nil
}

// knows reports whether the tool takes an argument of that name.
func (c *checker) knows(name string) bool {
	return c.schema.Properties[name] != nil || name == "namespace"
}

// undecoded returns the error for arguments that do not decode.
func (c *checker) undecoded(raw json.RawMessage) error {
	var sent map[string]json.RawMessage
	if json.Unmarshal(raw, &sent) != nil {
		return invalid("arguments is no object")
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if !c.knows(name) {
			return invalid("argument %s is unknown; %s", sandboxmcp.Quote(name), c.known())
		}
		if json.Unmarshal(sent[name], new(any)) != nil {
			return invalid("%s cannot be decoded: a number in it is out of range", name)
		}
	}
	return invalid("arguments cannot be decoded")
}

func (c *checker) known() string {
	if len(c.schema.PropertyOrder) == 0 {
		return c.tool + " takes none"
	}
	return c.tool + " takes " + strings.Join(c.schema.PropertyOrder, ", ")
}

// checkValue checks the type, the allowed values and the bounds of one argument.
func checkValue(name string, v any, s *jsonschema.Schema) error {
	kind := kindOf(v)
	if s.Type == "integer" && kind == "number" {
		n, _ := v.(float64)
		if n != math.Trunc(n) || math.Abs(n) > maxWhole {
			return invalid("%s is %s; it has to be an integer", name, digits(n))
		}
	} else if !takesKind(s, kind) {
		return invalid("%s is %s; it has to be %s", name, article(kind), kindsOf(s, article))
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		text, _ := v.(string)
		if _, err := sandboxmcp.ParseLanguage(text); name == "language" && err != nil {
			return sandboxmcp.AsError(err).WithHint("use " + oneOfList(s.Enum))
		}
		if name == "language" {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is %s; it has to be one of %s", name, sandboxmcp.Quote(text), list(s.Enum)).WithHint("use " + oneOfList(s.Enum))
		}
		return invalid("%s is %s; it has to be one of %s", name, sandboxmcp.Quote(text), list(s.Enum))
	}
	switch v := v.(type) {
	case float64:
		return checkBounds(name, v, s)
	case map[string]any:
		return checkObject(name, v, s)
	case []any:
		if s.MaxItems != nil && len(v) > *s.MaxItems {
			return invalid("%s has %d items; it has to have at most %d", name, len(v), *s.MaxItems)
		}
		for i, x := range v {
			if s.Items == nil {
				break
			}
			if err := checkValue(name+"["+strconv.Itoa(i)+"]", x, s.Items); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkObject checks the values of an object. If the schema has properties, no other names
// are allowed. Otherwise any name is allowed.
func checkObject(name string, v map[string]any, s *jsonschema.Schema) error {
	for _, key := range s.Required {
		if _, ok := v[key]; !ok {
			return invalid("%s.%s is missing", name, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		of, path := s.AdditionalProperties, name+"["+sandboxmcp.Quote(key)+"]"
		if s.Properties != nil {
			if of = s.Properties[key]; of == nil {
				return invalid("%s is unknown; %s takes %s", path, name, strings.Join(s.PropertyOrder, ", "))
			}
			path = name + "." + key
		}
		if of == nil {
			continue
		}
		if err := checkValue(path, v[key], of); err != nil {
			return err
		}
	}
	return nil
}

// takesKind reports whether the schema allows values of a JSON type.
func takesKind(s *jsonschema.Schema, kind string) bool {
	if len(s.Types) > 0 {
		return slices.Contains(s.Types, kind)
	}
	return s.Type == "" || s.Type == kind
}

// kindsOf lists the JSON types that a schema allows.
func kindsOf(s *jsonschema.Schema, word func(string) string) string {
	if len(s.Types) == 0 {
		return word(s.Type)
	}
	words := make([]string, len(s.Types))
	for i, t := range s.Types {
		words[i] = word(t)
	}
	return strings.Join(words, " or ")
}

func checkBounds(name string, v float64, s *jsonschema.Schema) error {
	switch {
	case s.Minimum != nil && v < *s.Minimum:
		return invalid("%s is %s; it has to be at least %s", name, digits(v), digits(*s.Minimum))
	case s.ExclusiveMinimum != nil && v <= *s.ExclusiveMinimum:
		return invalid("%s is %s; it has to be above %s", name, digits(v), digits(*s.ExclusiveMinimum))
	case s.Maximum != nil && v > *s.Maximum:
		return invalid("%s is %s; it has to be at most %s", name, digits(v), digits(*s.Maximum))
	}
	return nil
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	default:
		return "object"
	}
}

func article(kind string) string {
	switch kind {
	case "null":
		return kind
	case "integer", "array", "object":
		return "an " + kind
	default:
		return "a " + kind
	}
}

func digits(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// oneOfList is list for a hint: "python or node", "one of python, node, shell".
func oneOfList(values []any) string {
	if len(values) == 2 {
		return fmt.Sprintf("%v or %v", values[0], values[1])
	}
	return "one of " + list(values)
}

func list(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ", ")
}
