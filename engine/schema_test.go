package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// A server tells of a trigger that a writer of the database has made while no server ran.
func TestChangedTablesAreTold(t *testing.T) {
	dir := t.TempDir()
	in := at(dir)
	if err := open(t, &fake{}, in).Close(); err != nil {
		t.Fatal(err)
	}
	change := `CREATE TRIGGER another AFTER INSERT ON executions BEGIN SELECT 1; END`
	if storetest.Postgres() {
		change = `CREATE TRIGGER another AFTER INSERT ON executions FOR EACH ROW EXECUTE FUNCTION executions_count_bytes()`
	}
	storetest.Run(t, dir, change)
	e := open(t, &fake{}, in)
	testkit.Until(t, "the server tells", func() bool {
		s, err := e.Stats(t.Context())
		return err == nil && !s.Record.Signed && strings.Contains(s.Record.Reason, `the trigger "another" of table "executions"`)
	})
}
