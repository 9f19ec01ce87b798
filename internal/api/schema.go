package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// schemaOf returns the schema of a type in JSON. A form allows no other fields than its own. Other
// objects may get further fields in later releases.
func schemaOf(t reflect.Type, isForm bool) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():            {Type: "string", Format: "date-time"},
		reflect.TypeFor[[]byte]():               {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[json.RawMessage]():      {},
		reflect.TypeFor[sandboxmcp.JobStatus](): jobStatusSchema(),
		reflect.TypeFor[sandboxmcp.Status]():    statusSchema(),
	}})
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	refine(s, t, isForm)
	return s, nil
}

func statusSchema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, status := range append(sandboxmcp.Statuses(), sandboxmcp.StatusRunning) {
		s.Enum = append(s.Enum, string(status))
	}
	return s
}

func jobStatusSchema() *jsonschema.Schema {
	s := statusSchema()
	s.Enum = append(s.Enum, string(sandboxmcp.JobQueued), string(sandboxmcp.JobError))
	return s
}

// refine adds to a schema what the tags of its type say, and what [withoutNulls] does to answers.
func refine(s *jsonschema.Schema, t reflect.Type, isForm bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(s.Types) == 2 && s.Types[0] == "null" && t.Kind() == reflect.Slice { // never null
		s.Type, s.Types = s.Types[1], nil
	}
	switch t.Kind() {
	case reflect.Slice:
		if s.Items != nil {
			refine(s.Items, t.Elem(), isForm)
		}
	case reflect.Map:
		if s.AdditionalProperties != nil {
			refine(s.AdditionalProperties, t.Elem(), isForm)
		}
	case reflect.Struct:
		if s.Properties == nil {
			return
		}
		if !isForm {
			s.AdditionalProperties = nil
		}
		for f := range visibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if p := s.Properties[name]; p != nil {
				refine(p, f.Type, isForm)
				describe(p, f.Tag)
			}
		}
		if t == reflect.TypeFor[sandboxmcp.Session]() { // its encoding adds a field
			s.Properties["session_id"] = &jsonschema.Schema{Type: "string"}
			s.Required = append(s.Required, "session_id")
		}
	default:
	}
}

// visibleFields yields the fields of a struct and of those that it embeds.
func visibleFields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous && f.IsExported() && !yield(f) {
				return
			}
		}
	}
}

// describe adds the tags of a field to its schema.
func describe(s *jsonschema.Schema, tag reflect.StructTag) {
	p := part{tag: tag}
	s.Description = tag.Get("doc")
	if list, ok := tag.Lookup("enum"); ok {
		for value := range strings.SplitSeq(list, ",") {
			s.Enum = append(s.Enum, value)
		}
	}
	if tag.Get("filled") != "" {
		one := 1
		s.MinLength = &one
	}
	if n, ok := p.bound("above"); ok {
		s.ExclusiveMinimum = &n
	}
	if n, ok := p.bound("min"); ok {
		s.Minimum = &n
	}
	if n, ok := p.bound("max"); ok {
		s.Maximum = &n
	}
}

// errorSchema is the schema of the body of every failure.
func errorSchema() *jsonschema.Schema {
	code := &jsonschema.Schema{Type: "string"}
	for _, row := range sandboxmcp.CodeRows() {
		code.Enum = append(code.Enum, string(row.Code))
	}
	return &jsonschema.Schema{
		Type: "object", Required: []string{"error", "message", "hint"}, PropertyOrder: []string{"error", "message", "hint"},
		Properties: map[string]*jsonschema.Schema{
			"error": code, "message": {Type: "string", Description: "what happened"}, "hint": {Type: "string", Description: "what to do"},
			retryAfter: {Type: "integer", Description: "after how many seconds to ask again"},
		},
	}
}
