package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// The types of this file are the parts of an OpenAPI 3.1 document that this API needs.
type (
	openAPI struct {
		OpenAPI    string                          `json:"openapi"`
		Info       openInfo                        `json:"info"`
		Security   []map[string][]string           `json:"security"`
		Paths      map[string]map[string]operation `json:"paths"`
		Components components                      `json:"components"`
	}
	openInfo struct {
		Title       string `json:"title"`
		Description string `json:"description"`
		Version     string `json:"version"`
	}
	components struct {
		Schemas  map[string]*jsonschema.Schema `json:"schemas"`
		Security map[string]securityScheme     `json:"securitySchemes"`
	}
	securityScheme struct {
		Type   string `json:"type"`
		Name   string `json:"name,omitempty"`
		In     string `json:"in,omitempty"`
		Scheme string `json:"scheme,omitempty"`
	}
	operation struct {
		OperationID string                 `json:"operationId"`
		Summary     string                 `json:"summary"`
		Security    *[]map[string][]string `json:"security,omitempty"` // an empty list: no key is needed
		Parameters  []parameter            `json:"parameters,omitempty"`
		RequestBody *requestBody           `json:"requestBody,omitempty"`
		Responses   map[string]response    `json:"responses"`
	}
	parameter struct {
		Name        string             `json:"name"`
		In          string             `json:"in"`
		Required    bool               `json:"required"`
		Description string             `json:"description,omitempty"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	requestBody struct {
		Required bool                 `json:"required"`
		Content  map[string]mediaType `json:"content"`
	}
	mediaType struct {
		Schema  *jsonschema.Schema `json:"schema,omitempty"`
		Example json.RawMessage    `json:"example,omitempty"`
	}
	response struct {
		Description string               `json:"description"`
		Content     map[string]mediaType `json:"content"`
	}
)

const (
	jsonType    = "application/json"
	errorName   = "Error"
	openVersion = "3.1.0"
)

var openAPICache struct {
	sync.Mutex
	byVersion map[string][]byte
}

// openAPIOnce returns [OpenAPI] and keeps it.
func openAPIOnce(version string) ([]byte, error) {
	openAPICache.Lock()
	defer openAPICache.Unlock()
	if doc, ok := openAPICache.byVersion[version]; ok {
		return doc, nil
	}
	doc, err := OpenAPI(version)
	if err == nil {
		openAPICache.byVersion = map[string][]byte{version: doc}
	}
	return doc, err
}

// OpenAPI returns the OpenAPI document of the routes over HTTP, for a version of the product.
func OpenAPI(version string) ([]byte, error) {
	d := openAPI{
		OpenAPI:  openVersion,
		Info:     openInfo{"sandboxmcp", "Runs untrusted code in sandboxes. Every failure has the body of the schema Error and the HTTP status of its code.", version},
		Security: []map[string][]string{{"key": {}}, {"bearer": {}}},
		Paths:    map[string]map[string]operation{},
		Components: components{
			Schemas:  map[string]*jsonschema.Schema{errorName: errorSchema()},
			Security: map[string]securityScheme{"key": {Type: "apiKey", Name: "X-API-Key", In: "header"}, "bearer": {Type: "http", Scheme: "bearer"}},
		},
	}
	for _, r := range restEndpoints() {
		about := r.about()
		op, err := d.operation(about)
		if err != nil {
			return nil, err
		}
		if d.Paths[about.path] == nil {
			d.Paths[about.path] = map[string]operation{}
		}
		d.Paths[about.path][strings.ToLower(about.method)] = op
	}
	return json.MarshalIndent(d, "", " ")
}

var nameParts = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[a-z]+`) })

// operationID makes an id such as postExecuteAsync of a method and a path.
func operationID(r description) string {
	parts := []string{strings.ToLower(r.method)}
	for _, p := range nameParts().FindAllString(r.path, -1) {
		parts = append(parts, strings.ToUpper(p[:1])+p[1:])
	}
	return strings.Join(parts, "")
}

func (d *openAPI) operation(r description) (operation, error) {
	op := operation{OperationID: operationID(r), Summary: r.doc, Responses: map[string]response{}}
	if r.open {
		op.Security = &[]map[string][]string{}
	} else {
		op.Parameters = append(op.Parameters, parameter{Name: tenantHeader, In: "header", Description: "a namespace of the key; default: its first", Schema: &jsonschema.Schema{Type: "string"}})
	}
	if r.in != nil {
		if err := d.input(&op, r); err != nil {
			return op, err
		}
	}
	answer := response{"the answer", map[string]mediaType{cmp.Or(r.media, jsonType): {}}}
	if r.out != nil {
		ref, err := d.component(r.out, false)
		if err != nil {
			return op, err
		}
		answer.Content[jsonType] = mediaType{Schema: ref}
	}
	op.Responses[strconv.Itoa(http.StatusOK)] = answer
	for status, codes := range failures(r) {
		op.Responses[strconv.Itoa(status)] = response{strings.Join(codes, ", "), map[string]mediaType{jsonType: {Schema: refTo(errorName)}}}
	}
	return op, nil
}

// input adds the parameters and the body of a route.
func (d *openAPI) input(op *operation, r description) error {
	for f := range r.in.Fields() {
		for _, in := range []string{"path", "query", "header"} {
			name, ok := f.Tag.Lookup(in)
			if !ok {
				continue
			}
			s, err := schemaOf(f.Type, true)
			if err != nil {
				return err
			}
			describe(s, f.Tag)
			s.Description = "" // it is that of the parameter
			op.Parameters = append(op.Parameters, parameter{Name: name, In: in, Required: in == "path", Description: f.Tag.Get("doc"), Schema: s})
		}
		if _, ok := f.Tag.Lookup("body"); ok {
			ref, err := d.component(f.Type, true)
			if err != nil {
				return err
			}
			op.RequestBody = &requestBody{true, map[string]mediaType{jsonType: {Schema: ref, Example: json.RawMessage(cmp.Or(r.example, "null"))}}}
		}
	}
	return nil
}

// component adds the schema of a type, if it has a name, and returns a reference to it.
func (d *openAPI) component(t reflect.Type, isForm bool) (*jsonschema.Schema, error) {
	if t.Name() == "" {
		return schemaOf(t, isForm)
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if d.Components.Schemas[name] == nil {
		s, err := schemaOf(t, isForm)
		if err != nil {
			return nil, err
		}
		d.Components.Schemas[name] = s
	}
	return refTo(name), nil
}

func refTo(name string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/components/schemas/" + name}
}

// codesOf returns the codes that a route may fail with.
func codesOf(r description) []sandboxmcp.Code {
	var codes []sandboxmcp.Code
	if !r.open {
		codes = append(codes, sandboxmcp.CodeUnauthenticated, sandboxmcp.CodeAccessDenied)
	}
	codes = append(codes, sandboxmcp.CodeInvalidArgument)
	return append(append(codes, r.fails...), sandboxmcp.CodeInternal)
}

// failures returns the codes of a route by HTTP status.
func failures(r description) map[int][]string {
	by := map[int][]string{}
	for _, c := range codesOf(r) {
		status := c.Row().HTTP
		by[status] = append(by[status], string(c))
	}
	return by
}
