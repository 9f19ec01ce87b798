package audit_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// checkSchema is check with the comparison of the schema.
func checkSchema(t *testing.T, dir string) sandboxmcp.AuditReport {
	t.Helper()
	v, err := store.Look(t.Context(), store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = v.Close() }()
	rep, err := audit.Verify(t.Context(), v.DB(), audit.Evidence{Open: ours.OpenNote, Signer: ours, HeadFile: audit.HeadFile(dir, store.Path(store.Config{Dir: dir})), Schema: v.Differences})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// A writer of the database changes what its tables are.
func TestChangedSchemaIsFound(t *testing.T) {
	storetest.SQLite(t)
	restore := func(name, sql string) []string {
		return []string{`PRAGMA writable_schema = ON`, `UPDATE sqlite_schema SET sql = '` + sql + `' WHERE name = '` + name + `'`, `PRAGMA schema_version = 1000`}
	}
	for name, c := range map[string]struct {
		change []string
		reason string
	}{
		"nothing":       {nil, ""},
		"a row":         {[]string{`INSERT INTO notes VALUES ('X', 1, NULL)`, `ANALYZE`, `VACUUM`}, ""},
		"a trigger":     {[]string{`CREATE TRIGGER another AFTER INSERT ON executions BEGIN SELECT 1; END`}, `the trigger "another" of table "executions"`},
		"no trigger":    {[]string{`DROP TRIGGER audit_no_delete`}, `the trigger audit_no_delete is missing`},
		"an index":      {[]string{`DROP INDEX audit_action`, `CREATE INDEX audit_action ON audit (namespace)`}, `the index audit_action is not the one`},
		"a view":        {[]string{`CREATE VIEW x AS SELECT 1`}, `the view "x"`},
		"another table": {[]string{`ALTER TABLE notes ADD COLUMN x TEXT`}, `the table notes is not the one`},
		"a view in the place of the table": {
			[]string{`DROP TRIGGER audit_no_delete`, `DROP TABLE audit`, `CREATE VIEW audit AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS position FROM n`},
			`the table audit is not the one`,
		},
		"an index without a row, with its definition restored": {
			append([]string{`DROP INDEX audit_chain`, `CREATE UNIQUE INDEX audit_chain ON audit (namespace, seq) WHERE NOT (namespace = 'b' AND seq = 3)`},
				restore("audit_chain", `CREATE UNIQUE INDEX audit_chain ON audit (namespace, seq)`)...), "its indexes were made otherwise",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			raw(t, dir, c.change...)
			rep := checkSchema(t, dir)
			if c.reason == "" {
				if !rep.OK || rep.Entries != 30 {
					t.Errorf("got %d entries and %+v, want 30 and no fault", rep.Entries, rep.Faults)
				}
				return
			}
			if rep.OK || len(rep.Faults) == 0 || rep.Faults[0].Kind != "schema" {
				t.Fatalf("got %+v, want a fault of the schema", rep.Faults)
			}
			var all strings.Builder
			for _, f := range rep.Faults {
				all.WriteString(f.Reason + "\n")
			}
			if !strings.Contains(all.String(), c.reason) {
				t.Errorf("got %q, want %q", all.String(), c.reason)
			}
		})
	}
}
