package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
)

// form is the part of a JSON Schema that describes a value.
type form map[string]any

func anyForm() form                { return form{"type": []string{"string", "number", "boolean"}} } // a text that YAML may read as another type
func booleanForm() form            { return form{"enum": []any{true, false, 1, 0, "yes", "no", "on", "off"}} }
func wordForm(words []string) form { return form{"enum": words} }
func listForm() form               { return form{"type": "array", "items": anyForm()} }

func integerForm(low, high int64) form {
	return form{"type": "integer", "minimum": low, "maximum": high}
}

// numberForm describes a number above low and up to high. A low of -1 means that 0 is legal.
func numberForm(low, high float64) form {
	f := form{"type": "number", "exclusiveMinimum": low, "maximum": high}
	if low < 0 {
		delete(f, "exclusiveMinimum")
		f["minimum"] = 0
	}
	return f
}

// Schema returns the JSON Schema of a file of settings, for editors. A file that it accepts
// may still be refused: it does not describe how texts such as domains are written.
func Schema() ([]byte, error) {
	c, err := defaults()
	if err != nil {
		return nil, err
	}
	properties := map[string]any{}
	for _, r := range c.rows {
		if r.envOnly() {
			continue
		}
		f := form{"description": r.doc + " It has to be " + r.into.legal() + "."}
		maps.Copy(f, r.into.form)
		if r.def != "" {
			f["default"] = plainNumber(r.into.show())
		}
		properties[r.key] = f
	}
	out, err := json.MarshalIndent(form{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Settings of sandboxmcp",
		"type": []string{"object", "null"}, "additionalProperties": false, "properties": properties,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return append(out, '\n'), nil
}

// plainNumber returns a whole number as an integer, so that it is written without a point.
func plainNumber(v any) any {
	if f, ok := v.(float64); ok && f == math.Trunc(f) {
		return int64(f)
	}
	return v
}
