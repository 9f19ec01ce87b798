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

// Document is a JSON object as a reader of the file sees it: by the exact names
// of its members. A decoder into a struct would take "STDOUT" for "stdout", and
// so check another text than the one that is shown.
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

// into decodes a part of a document.
func into(part, to any) error {
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// ReadReceipt takes a receipt, or the receipt of a result together with that result, from
// JSON. The text is refused with invalid_argument if two readers could take it for two
// values. In the message what names the text.
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
		return r, nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds no plain receipt: %s", what, err).WithCause(err)
	}
	if err := into(part, &r); err != nil || r.Payload == "" {
		return r, nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds no receipt", what)
	}
	return r, doc, nil
}

// Members of a receipt and of its signatures.
var (
	receiptMembers   = []string{"payloadType", "payload", "signatures"}
	signatureMembers = []string{"keyid", "sig"}
)

// plainReceipt refuses a receipt with members that are not signed, and a result that
// a reader could take for another receipt or another result.
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
	files, _ := result["artifacts"].([]any)
	for _, f := range files {
		if file, ok := f.(map[string]any); ok {
			if err := onceInAnyCase(file, "name", "path", "size_bytes", "sha256", "content_b64"); err != nil {
				return err
			}
		}
	}
	return nil
}

// resultMembers are the members of a result that a receipt states.
var resultMembers = []string{
	"request_id", "session_id", "namespace", "language", "status", "success", "exit_code", "stdout", "stderr", "stdout_truncated", "stderr_truncated", "isolation", "network",
}

// Differences names what a result says otherwise than its signed receipt. What
// a receipt does not state (results, metadata, usage, duration) cannot be
// compared, and a member that is not in the document claims nothing.
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
func fileDifference(file Document, want sandboxmcp.ReceiptArtifact) string {
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
