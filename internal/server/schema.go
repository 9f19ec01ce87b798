package server

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

// field is one property of an object's schema.
type field struct {
	name     string
	required bool
	schema   *jsonschema.Schema
}

// need is a required property, opt an optional one. In an output schema, need is only
// documentation; see [output].
func need(name string, s *jsonschema.Schema) field { return field{name, true, s} }
func opt(name string, s *jsonschema.Schema) field  { return field{name, false, s} }

// input is the schema of a tool's arguments. It allows no other properties.
func input(fields ...field) *jsonschema.Schema {
	s := output(fields...)
	for _, f := range fields {
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	return s
}

// output is the schema of a result, which may have further properties. No property is
// required, because an error result has none of them. A client that validates structured
// content would otherwise show its model a schema error instead of the real error.
func output(fields ...field) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, f := range fields {
		s.Properties[f.name] = f.schema
		s.PropertyOrder = append(s.PropertyOrder, f.name)
	}
	return s
}

// typed is a schema for values of one or several JSON types.
func typed(types ...string) *jsonschema.Schema {
	if len(types) == 1 {
		return &jsonschema.Schema{Type: types[0]}
	}
	return &jsonschema.Schema{Types: types}
}

// about is a schema for values of one JSON type, with a description.
func about(kind, description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: kind, Description: description}
}

// fallback returns s with a default value.
func fallback(s *jsonschema.Schema, value string) *jsonschema.Schema {
	s.Default = json.RawMessage(value)
	return s
}

// oneOf returns s with a list of allowed values.
func oneOf(s *jsonschema.Schema, values ...string) *jsonschema.Schema {
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// atLeast and atMost add an inclusive bound to s, above adds an exclusive one.
func atLeast(s *jsonschema.Schema, v float64) *jsonschema.Schema { s.Minimum = &v; return s }
func atMost(s *jsonschema.Schema, v float64) *jsonschema.Schema  { s.Maximum = &v; return s }
func above(s *jsonschema.Schema, v float64) *jsonschema.Schema   { s.ExclusiveMinimum = &v; return s } //nolint:unparam // 0 is one of many

// valuesOf is an object with arbitrary names whose values have one type.
func valuesOf(s *jsonschema.Schema, kind string) *jsonschema.Schema {
	s.AdditionalProperties = typed(kind)
	return s
}
