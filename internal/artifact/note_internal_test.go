package artifact

import (
	"database/sql"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestANoteHoldsAllOfAResult: what another process reads from a note is what was kept, in the present form and in that of
// earlier versions. A note that is cut short anywhere is refused.
func TestANoteHoldsAllOfAResult(t *testing.T) {
	session := sandboxmcp.SessionID("s")
	some := sql.NullString{String: "\x00 \"{}\n", Valid: true}
	for name, want := range map[string]rows{
		"inline": {
			RequestID: "r", Namespace: "n", SessionID: &session, Language: "python", Status: "completed", ExitCode: 3, Created: "a", Ended: "b",
			Result: `{"a":"1\n"}`, Stdout: []byte("\xff\x00out"), Stderr: []byte{}, Receipt: some, Artifacts: []sandboxmcp.Artifact{{Name: "f", ContentB64: []byte{}}}, Bytes: 7,
		},
		"in blobs": {RequestID: "r", Result: "{}", OutBlob: some, ErrBlob: some},
		"empty":    {Stdout: []byte{}, Stderr: []byte{}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := want.note()
			if err != nil {
				t.Fatal(err)
			}
			old, err := json.Marshal(&want)
			if err != nil {
				t.Fatal(err)
			}
			for form, given := range map[string][]byte{"present": data, "earlier": old} {
				if got, err := noted(given); err != nil || !reflect.DeepEqual(*got, want) {
					t.Errorf("%s form: got %+v, %v; want %+v", form, got, err, want)
				}
			}
			for n := range data {
				if got, err := noted(data[:n]); err == nil {
					t.Errorf("the first %d bytes of %d: got %+v, want an error", n, len(data), got)
				}
			}
		})
	}
}
