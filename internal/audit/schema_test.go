package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// checkSchemaOf is checkSchema, also in PostgreSQL.
func checkSchemaOf(t *testing.T, dir string) sandboxmcp.AuditReport {
	t.Helper()
	v, err := store.Look(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = v.Close() }()
	return check(t, dir, func(e *audit.Evidence) { e.Schema = v.Differences })
}

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
		"of packages":   {[]string{`DROP TRIGGER packages_removed`}, `the trigger packages_removed is missing`},
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

// A server compares its tables once, and tells. It signs on.
func TestServerTellsOfChangedTables(t *testing.T) {
	cases := map[string]struct{ change, reason string }{
		"nothing":        {`SELECT 1`, ""},
		"newer":          {`PRAGMA user_version = 1000`, ""},
		"a trigger":      {`CREATE TRIGGER another AFTER INSERT ON executions BEGIN SELECT 1; END`, `the trigger "another" of table "executions"`},
		"no trigger":     {`DROP TRIGGER audit_no_delete`, `the trigger audit_no_delete is missing`},
		"another table":  {`ALTER TABLE notes ADD COLUMN x TEXT`, `the table notes is not the one`},
		"an empty table": {`CREATE TABLE audit_more (x TEXT)`, `the table "audit_more" of table "audit_more" is not of this program`},
	}
	if storetest.Postgres() {
		cases = postgresChanges
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			r := openSealed(t, dir)
			storetest.Run(t, dir, c.change)
			if err := r.l.CheckSchema(t.Context()); (err != nil) != (name == "newer") {
				t.Fatal(err)
			}
			if s := r.l.Signing(); s.Signed != (c.reason == "") || !strings.Contains(s.Reason, c.reason) {
				t.Errorf("got %+v, want %q", s, c.reason)
			}
			if name != "newer" {
				if rep := checkSchemaOf(t, dir); rep.OK != (c.reason == "") {
					t.Errorf("verify: got %+v", rep.Faults)
				}
			}
			r.append(t, "a", 1)
			if name == "newer" {
				storetest.Run(t, dir, `PRAGMA user_version = 16`)
			}
			r.close(t)
			if name == "a view" {
				return // it is not read
			}
			if rep := check(t, dir); rep.Head.Size != 31 {
				t.Errorf("the newest checkpoint is over %d entries, want 31", rep.Head.Size)
			}
		})
	}
}

// A writer of the database can change the version of its tables, so that this release does not compare them, or remove it, so that there
// seems to be no record. A server reports both, and a command fails in place of reading an empty record.
func TestAnotherVersionIsTold(t *testing.T) {
	const told = "the database says that its tables have version"
	cases := map[string]struct {
		change, reason string
		fails, read    bool
	}{
		"older": {`PRAGMA user_version = 5`, told + " 5", false, true},
		"none":  {`PRAGMA user_version = 0; PRAGMA application_id = 0`, told + " 0", false, false},
		"newer": {`PRAGMA user_version = 1000`, "", true, false},
	}
	if storetest.Postgres() {
		for name, change := range map[string]string{
			"older": `DELETE FROM goose_db_version WHERE version_id > 5`,
			"none":  `DELETE FROM goose_db_version`,
			"newer": `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)`,
		} {
			c := cases[name]
			c.change = change
			cases[name] = c
		}
		cases["no table"] = cases["none"]
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			r := openSealed(t, dir)
			if storetest.Run(t, dir, c.change); name == "no table" {
				storetest.Run(t, dir, `DROP TABLE goose_db_version`)
			}
			err := r.l.CheckSchema(t.Context())
			if s := r.l.Signing(); (err != nil) != c.fails || s.Signed != (c.reason == "") || !strings.Contains(s.Reason, c.reason) {
				t.Errorf("got %+v and %v, want %q", s, err, c.reason)
			}
			v, err := store.Look(t.Context(), storetest.On(store.Config{Dir: dir}))
			if v != nil {
				_ = v.Close()
			}
			if (v != nil) != c.read || (err == nil) != c.read {
				t.Errorf("got a view: %v and %v, want %v", v != nil, err, c.read)
			}
			r.close(t)
		})
	}
}

// A writer of the database can make each comparison fail, such as with the version of the tables, or with constraints that take long to read.
// Then that is told, until there is a comparison. A failure such as that of a restart is not.
func TestAComparisonThatFailsEachTimeIsTold(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir)
	defer r.close(t)
	newer, back := `PRAGMA user_version = 1000`, ""
	if storetest.Postgres() {
		newer, back = `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)`, `DELETE FROM goose_db_version WHERE version_id = 1000`
	} else {
		back = fmt.Sprintf(`PRAGMA user_version = %d`, store.Newest(store.Config{}))
	}
	for n, c := range []struct{ change, reason string }{
		{newer, ""}, {back, ""}, {newer, ""}, {newer, "cannot be compared"}, {newer, "cannot be compared"}, {back, ""},
	} {
		storetest.Run(t, dir, c.change)
		err := r.l.CheckSchema(t.Context())
		if s := r.l.Signing(); (err != nil) != (c.change == newer) || s.Signed != (c.reason == "") || !strings.Contains(s.Reason, c.reason) {
			t.Errorf("comparison %d: got %+v and %v, want %q", n+1, s, err, c.reason)
		}
	}
}

// postgresChanges are what a writer of a PostgreSQL database can do to the tables of the record.
var postgresChanges = map[string]struct{ change, reason string }{
	"nothing": {`SELECT 1`, ""},
	"a trigger": {
		`CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; CREATE TRIGGER another AFTER INSERT ON executions FOR EACH ROW EXECUTE FUNCTION nothing()`,
		`the trigger "another" of table "executions"`,
	},
	"the trigger on another table": {`CREATE TABLE notices (x TEXT); CREATE TRIGGER audit_no_update BEFORE UPDATE ON notices FOR EACH ROW EXECUTE FUNCTION audit_is_append_only()`, `"audit_no_update" of table "notices"`},
	"no trigger":                   {`DROP TRIGGER audit_no_delete ON audit`, `the trigger audit_no_delete is missing`},
	"no trigger of packages":       {`DROP TRIGGER packages_removed ON packages`, `the trigger packages_removed is missing`},
	"a trigger that is off":        {`ALTER TABLE audit DISABLE TRIGGER audit_no_delete`, `the trigger audit_no_delete, or the function`},
	"a trigger with a condition":   {`DROP TRIGGER audit_no_update ON audit; CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit FOR EACH ROW WHEN (OLD.position > 5) EXECUTE FUNCTION audit_is_append_only()`, `the trigger audit_no_update, or the function`},
	"a function":                   {`CREATE OR REPLACE FUNCTION audit_drop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$`, `the trigger audit_no_delete, or the function`},
	"a rule":                       {`CREATE RULE none AS ON DELETE TO audit DO INSTEAD NOTHING`, `the table "audit" has a rule`},
	"policies":                     {`ALTER TABLE audit ENABLE ROW LEVEL SECURITY`, `the table "audit" has policies for rows`},
	"a child":                      {`CREATE TABLE more () INHERITS (audit_dropped)`, `the table "audit_dropped" has child tables`},
	"an index with a condition that calls a function": {`CREATE FUNCTION yes() RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true'; CREATE INDEX more ON audit (action) WHERE yes()`, `the table "audit" has an index`},
	"an index of an expression":                       {`CREATE FUNCTION same(n bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT n'; CREATE INDEX more ON grants (same(octet_length(id)))`, `the table "grants" has an index`},
	"a column of another type":                        {`CREATE DOMAIN word AS TEXT COLLATE "C"; DROP INDEX audit_action; ALTER TABLE audit ALTER COLUMN action TYPE word; CREATE INDEX audit_action ON audit (namespace, action, seq) WHERE action <> 'execute'`, `the column action of table audit`},
	"a column of bytes":                               {`DROP INDEX audit_action; ALTER TABLE audit ALTER COLUMN action TYPE BYTEA USING convert_to(action, 'UTF8')`, `the column action of table audit`},
	"many columns":                                    {`DO $$ BEGIN EXECUTE 'ALTER TABLE limits ' || (SELECT string_agg('ADD COLUMN more' || n || ' TEXT', ', ') FROM generate_series(1, 1100) AS n); END $$`, "the tables have more than 1000 columns"},
	"a table that is not logged":                      {`ALTER TABLE executions SET UNLOGGED`, `the table "executions" is not logged`},
	"a column of another collation":                   {`ALTER TABLE grants ALTER COLUMN id TYPE TEXT COLLATE "default"`, `the column id of table grants`},
	"a constraint":                                    {`CREATE FUNCTION fits(n bigint) RETURNS bool LANGUAGE sql AS 'SELECT true'; ALTER TABLE audit ADD CHECK (fits(seq))`, `the table "audit" has an index, a constraint`},
	"another function of a known name":                {`CREATE FUNCTION "left"(text, text) RETURNS text LANGUAGE sql AS 'SELECT $1'`, `a function "left"`},
	"a function that hides others":                    {`CREATE FUNCTION unnest(oidvector) RETURNS SETOF oid LANGUAGE sql AS 'SELECT CAST(4294967295 AS oid)'`, `a function "unnest"`},
	"a function of the lock":                          {`CREATE FUNCTION hashtextextended(text, int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the lock of writers has called it'; END $$`, `a function "hashtextextended"`},
	"another operator of a known name":                {`CREATE FUNCTION cat(name, name) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the lock of writers has called it'; END $$; CREATE OPERATOR || (leftarg = name, rightarg = name, procedure = cat)`, `an operator "||"`},
	"an index without an expression":                  {`CREATE INDEX more ON audit (action); CREATE FUNCTION note(text) RETURNS text LANGUAGE sql AS 'SELECT $1'`, ""},
	"an index with another condition":                 {`CREATE INDEX more ON audit (position) WHERE position <> 5 OR CAST('\x61'::bytea AS TEXT) <> 'a'`, `the table "audit" has an index, a constraint, a default or a column with an expression`},
	"an index of lengths":                             {`CREATE INDEX more ON audit (length(action))`, `the table "audit" has an index, a constraint, a default or a column with an expression`},
	"another constraint":                              {`ALTER TABLE audit ADD CHECK (action <> 'x' OR CAST('\x61'::bytea AS TEXT) = '\x61')`, `the table "audit" has an index, a constraint, a default or a column with an expression`},
	"a reference":                                     {`CREATE TABLE names (name TEXT PRIMARY KEY); ALTER TABLE grants ADD FOREIGN KEY (id) REFERENCES names ON DELETE CASCADE`, `the table "grants" has an index, a constraint, a default or a column with an expression`},
	"a reference to it":                               {`CREATE TABLE names (name TEXT REFERENCES grants ON DELETE CASCADE)`, `the table "grants" is referred to by another table`},
	"statistics of an expression":                     {`CREATE FUNCTION more() RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT NULL'; CREATE STATISTICS more ON (more() || action) FROM audit`, `the table "audit" has an index, a constraint, a default, a column or statistics that use`},
	"statistics of columns":                           {`CREATE STATISTICS more ON action, namespace FROM audit; CREATE STATISTICS lengths ON (length(action)) FROM audit`, ""},
	"a partition":                                     {`CREATE TABLE more (LIKE limits) PARTITION BY LIST (length(kept)); ALTER TABLE more ATTACH PARTITION limits DEFAULT`, `the table "limits" is a partition or a child`},
	"an index of the versions":                        {`CREATE INDEX more ON goose_db_version (id) WHERE version_id > 5`, `the table "goose_db_version" has an index, a constraint, a default or a column with an expression`},
	"a default":                                       {`ALTER TABLE executions ADD COLUMN more TEXT DEFAULT set_config('synchronous_commit', 'off', true)`, `the table "executions" has an index, a constraint, a default or a column with an expression`},
	"functions and operators of another program":      {`CREATE FUNCTION round(double precision, int) RETURNS numeric LANGUAGE sql AS 'SELECT 1.0'; CREATE FUNCTION sum(int[]) RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE FUNCTION more(int[], int) RETURNS int[] LANGUAGE sql AS 'SELECT $1'; CREATE OPERATOR + (leftarg = int[], rightarg = int, procedure = more)`, ""},
	"a view of grants":                                {`ALTER TABLE grants RENAME TO other; CREATE VIEW grants AS SELECT * FROM other`, `the table "grants" is not a table`},
	"a view":                                          {`ALTER TABLE audit_dropped RENAME TO other; CREATE VIEW audit_dropped AS SELECT * FROM other`, `the table "audit_dropped" is not a table`},
}
