package sign

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

// Document is a JSON object with the exact names of its members. Decoding into a struct
// ignores case: it would accept "STDOUT" as "stdout", and then check another text than the
// one that a reader sees.
type Document map[string]any

func parseDocument(data []byte) (Document, error) {
	if err := strictJSON(data); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var doc Document
	err := d.Decode(&doc)
	return doc, err
}

// into converts a part of a document to the type of to.
func into(part, to any) error {
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// ReadReceipt parses JSON that is either a receipt or a result with a receipt. In the
// second case it also returns the result. It fails with invalid_argument if two JSON
// parsers could read the text differently, and if it has members that are no part of a
// receipt or a result: nothing compares them with the receipt, and a reader would take
// them for verified. what names the text in the error message.
func ReadReceipt(what string, data []byte) (r sandboxmcp.Receipt, result Document, err error) {
	doc, err := parseDocument(data)
	if err != nil {
		return r, nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is not plain JSON: %s", what, err).WithCause(err)
	}
	part, whole := doc["receipt"]
	if !whole || part == nil {
		part, doc = map[string]any(doc), nil
	}
	if err := plainReceipt(part, doc); err != nil {
		return r, nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds no plain receipt: %s", what, err).
			WithHint("give the receipt alone, or the result with nothing beside its own members").WithCause(err)
	}
	if err := into(part, &r); err != nil || r.Payload == "" {
		return r, nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds no receipt", what)
	}
	return r, doc, nil
}

// The only members that a receipt and its signatures may have.
var (
	receiptMembers   = []string{"payloadType", "payload", "signatures"}
	signatureMembers = []string{"keyid", "sig"}
)

// plainReceipt fails if a receipt has unsigned members, or if a parser that ignores case
// could read another receipt or result.
func plainReceipt(part any, result Document) error {
	if err := onlyMembers("the receipt", part, receiptMembers...); err != nil {
		return err
	}
	receipt, _ := part.(map[string]any)
	signatures, _ := receipt["signatures"].([]any)
	for _, s := range signatures {
		if err := onlyMembers("a signature", s, signatureMembers...); err != nil {
			return err
		}
	}
	if result == nil {
		return nil
	}
	for _, name := range receiptMembers {
		if _, beside := result[name]; beside {
			return fmt.Errorf("the member %s stands beside a receipt", name)
		}
	}
	if err := onceInAnyCase(result, append(resultMembers, "receipt", "artifacts", "manifest")...); err != nil {
		return err
	}
	if err := onlyMembers("the result", map[string]any(result), slices.Concat(resultMembers, unsignedMembers, []string{"receipt", "artifacts", "manifest"})...); err != nil {
		return err
	}
	files, _ := result["artifacts"].([]any)
	for _, f := range files {
		if file, ok := f.(map[string]any); ok {
			err := onceInAnyCase(file, fileMembers...)
			if err == nil {
				err = onlyMembers("a file of the result", file, slices.Concat(fileMembers, unsignedFileMembers)...)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// resultMembers are the members of a result that its receipt also states.
var resultMembers = []string{
	"request_id", "session_id", "namespace", "language", "status", "success", "exit_code", "stdout", "stderr", "stdout_truncated", "stderr_truncated", "isolation", "network",
}

// unsignedMembers are members of a result that its receipt does not state, also in answers of the MCP tools.
var unsignedMembers = []string{
	"duration_ms", "resource_usage", "metadata", "signal", "session_created", "state_lost", "state_lost_in", "backend", "results", "error",
	"elapsed_seconds", "timeout_seconds", "note", "stdout_uri", "stderr_uri", "more_artifacts", "more_artifacts_at_least", "how_to_get",
	"skipped", "skipped_reasons", "clamped", "queue_place",
}

// Members of a file in a result: those that are compared with the receipt, and the others.
var (
	fileMembers         = []string{"name", "path", "size_bytes", "sha256", "content_b64", "text"}
	unsignedFileMembers = []string{"signature", "created_at", "mime_type", "uri", "download_url", "files"}
)

// Unsigned names the members of a result that have a value and that its receipt does not state, in alphabetical order.
// Those of files are "artifacts." and their name.
func (doc Document) Unsigned() []string {
	found := map[string]bool{}
	add := func(prefix string, object map[string]any, names []string) {
		for _, name := range names {
			if v := plain(object[name]); v != nil && v != "" {
				found[prefix+name] = true
			}
		}
	}
	add("", doc, unsignedMembers)
	files, _ := doc["artifacts"].([]any)
	for _, f := range files {
		file, _ := f.(map[string]any)
		add("artifacts.", file, unsignedFileMembers)
	}
	return slices.Sorted(maps.Keys(found))
}

// Differences names the members of a result that contradict its signed receipt. Members
// that a receipt does not state (results, metadata, usage, duration) are not compared.
// Missing members are no contradiction.
func (doc Document) Differences(p sandboxmcp.ReceiptPredicate) []string {
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

// fileDifferences names the files that differ between a list and the receipt, and those
// that are only in one of the two.
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

// fileDifference names the property in which a file differs from the receipt, or returns
// "". If the document omits the content, only the hash is compared.
func fileDifference(file Document, want sandboxmcp.ReceiptArtifact) string {
	for _, m := range []struct {
		name string
		want any
	}{{"path", want.Path}, {"size_bytes", want.SizeBytes}, {"sha256", want.SHA256}} {
		if got, ok := file[m.name]; ok && !same(got, m.want) {
			return m.name
		}
	}
	if whole, given := file["text"]; given && whole != nil && hashOf(whole) != want.SHA256 {
		return "content"
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

// nameOf returns a file's path relative to the working directory of programs.
func nameOf(f sandboxmcp.ReceiptArtifact) string { return strings.TrimPrefix(f.Path, "/mnt/data/") }

// hashOf returns the SHA-256 of a string in hex, or "" for any other type.
func hashOf(v any) string {
	text, ok := v.(string)
	if !ok {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// same reports whether a member equals a Go value after both are JSON. Absent and empty
// lists or objects are equal.
func same(got, want any) bool {
	text, err := json.Marshal(map[string]any{"v": want})
	if err != nil {
		return false
	}
	doc, err := parseDocument(text)
	return err == nil && reflect.DeepEqual(plain(got), plain(doc["v"]))
}

// plain converts a JSON value so that reflect.DeepEqual ignores the spelling of numbers,
// and the difference between null and empty lists or objects.
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
