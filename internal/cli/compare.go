package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// document is a JSON object as a reader of the file sees it: by the exact names
// of its members. A decoder into a struct would take "STDOUT" for "stdout", and
// so check another text than the one that is shown.
type document map[string]any

func parseDocument(data []byte) (document, error) {
	if err := strictJSON(data); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var doc document
	err := d.Decode(&doc)
	return doc, err
}

// into decodes a part of a document.
func into(part, to any) error {
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// differences names what a result says otherwise than its signed receipt. What
// a receipt does not state (results, metadata, usage, duration) cannot be
// compared, and a member that is not in the document claims nothing.
func differences(doc document, p sandboxmcp.ReceiptPredicate) []string {
	var found []string
	compare := func(name string, want any) {
		if got, ok := doc[name]; ok && !same(got, want) {
			found = append(found, name)
		}
	}
	compare("request_id", p.RequestID)
	compare("session_id", p.SessionID)
	compare("namespace", p.Namespace)
	compare("language", p.Language)
	compare("status", p.Status)
	compare("success", p.Status == sandboxmcp.StatusCompleted)
	compare("exit_code", p.ExitCode)
	for _, s := range []struct{ name, sum string }{{"stdout", p.StdoutSHA256}, {"stderr", p.StderrSHA256}} {
		switch got, ok := doc[s.name]; {
		case !ok, hashOf(got) == s.sum:
		case doc[s.name+"_uri"] != nil:
			found = append(found, s.name+" (shortened in this document)")
		default:
			found = append(found, s.name)
		}
	}
	compare("stdout_truncated", p.StdoutTruncated)
	compare("stderr_truncated", p.StderrTruncated)
	compare("isolation", p.Isolation)
	compare("network", p.Network)
	if got, ok := doc["artifacts"]; ok {
		found = append(found, fileDifferences(got, p.Artifacts)...)
	}
	if got, ok := doc["manifest"]; ok {
		manifest := map[string]string{}
		for _, f := range p.Artifacts {
			manifest[nameOf(f)] = f.SHA256
		}
		if !same(got, manifest) {
			found = append(found, "manifest")
		}
	}
	return found
}

// fileDifferences names the files of a list that are not as they were signed,
// and those that are only in one of the two.
func fileDifferences(list any, signed []sandboxmcp.ReceiptArtifact) []string {
	files, ok := list.([]any)
	if !ok && list != nil {
		return []string{"artifacts"}
	}
	missing := map[string]sandboxmcp.ReceiptArtifact{}
	for _, f := range signed {
		missing[nameOf(f)] = f
	}
	var found []string
	for _, f := range files {
		file, _ := f.(map[string]any)
		name, _ := file["name"].(string)
		want, known := missing[name]
		delete(missing, name)
		if why := fileDifference(file, want); !known {
			found = append(found, "artifact "+sandboxmcp.Quote(name)+" (not in the receipt)")
		} else if why != "" {
			found = append(found, "artifact "+sandboxmcp.Quote(name)+" ("+why+")")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		found = append(found, "artifact "+sandboxmcp.Quote(name)+" (only in the receipt)")
	}
	return found
}

// fileDifference says in what a file is not as it was signed. Content that was
// left out is not compared: its hash is.
func fileDifference(file document, want sandboxmcp.ReceiptArtifact) string {
	for _, m := range []struct {
		name string
		want any
	}{{"path", want.Path}, {"size_bytes", want.SizeBytes}, {"sha256", want.SHA256}} {
		if got, ok := file[m.name]; ok && !same(got, m.want) {
			return m.name
		}
	}
	text, given := file["content_b64"]
	if !given || text == "" || text == nil {
		return ""
	}
	encoded, _ := text.(string)
	content, err := base64.StdEncoding.DecodeString(encoded)
	if sum := sha256.Sum256(content); err != nil || hex.EncodeToString(sum[:]) != want.SHA256 {
		return "content"
	}
	return ""
}

// nameOf is a file's path below the directory that programs work in.
func nameOf(f sandboxmcp.ReceiptArtifact) string { return strings.TrimPrefix(f.Path, "/mnt/data/") }

// hashOf is the SHA-256 of a member that is text; of another there is none.
func hashOf(v any) string {
	text, ok := v.(string)
	if !ok {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// same compares a member with a value by what JSON makes of it. An absent list
// and an empty one are the same.
func same(got, want any) bool {
	text, err := json.Marshal(map[string]any{"v": want})
	if err != nil {
		return false
	}
	doc, err := parseDocument(text)
	return err == nil && reflect.DeepEqual(plain(got), plain(doc["v"]))
}

// plain makes values comparable that JSON has several forms of.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return fmt.Sprint(v)
		}
		return f
	case []any:
		if len(v) == 0 {
			return nil
		}
		list := make([]any, len(v))
		for i := range v {
			list[i] = plain(v[i])
		}
		return list
	case map[string]any:
		if len(v) == 0 {
			return nil
		}
		object := make(map[string]any, len(v))
		for k := range v {
			object[k] = plain(v[k])
		}
		return object
	}
	return v
}
