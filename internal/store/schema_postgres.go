package store

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// madePostgres returns the triggers that the migrations make, as the server describes them, and the bodies of the functions
// that these call. Both are by name.
var madePostgres = sync.OnceValues(func() (made postgresObjects, err error) {
	const dir = "migrations/postgres"
	files, err := fs.ReadDir(migrations, dir)
	made = postgresObjects{triggers: map[string]string{}, bodies: map[string]string{}, columns: map[column]string{}}
	for _, f := range files {
		if err == nil {
			err = made.read(dir + "/" + f.Name())
		}
	}
	return made, err
})

type postgresObjects struct {
	triggers, bodies map[string]string
	columns          map[column]string // their types
}

type column struct{ table, name string }

var (
	postgresFunction = regexp.MustCompile(`(?s)FUNCTION (\w+)\(\) RETURNS trigger LANGUAGE plpgsql AS \$\$(.*?)\$\$;`)
	postgresTable    = regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\);`)
	postgresColumn   = regexp.MustCompile(`(?m)^    ([a-z]\w*) +(TEXT|BIGINT|BYTEA|DOUBLE PRECISION)\b`)
	postgresAdded    = regexp.MustCompile(`ALTER TABLE (\w+) ADD COLUMN (\w+) (TEXT)\b`)
	postgresTrigger  = regexp.MustCompile(`CREATE TRIGGER (\w+) ([A-Z ]+(?: OF \w+)?) ON (\w+)\s+(FOR EACH ROW )?EXECUTE FUNCTION (\w+)\(\);`)
)

// read adds what a migration makes.
func (o postgresObjects) read(file string) error {
	text, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	up, _, _ := strings.Cut(string(text), "-- +goose Down")
	for _, t := range postgresTable.FindAllStringSubmatch(up, -1) {
		for _, m := range postgresColumn.FindAllStringSubmatch(t[2], -1) {
			o.columns[column{t[1], m[1]}] = strings.ToLower(m[2])
		}
	}
	for _, m := range postgresAdded.FindAllStringSubmatch(up, -1) {
		o.columns[column{m[1], m[2]}] = strings.ToLower(m[3])
	}
	for _, m := range postgresFunction.FindAllStringSubmatch(up, -1) {
		o.bodies[m[1]] = m[2]
	}
	for _, m := range postgresTrigger.FindAllStringSubmatch(up, -1) {
		each := "FOR EACH ROW"
		if m[4] == "" {
			each = "FOR EACH STATEMENT"
		}
		o.triggers[m[1]] = "CREATE TRIGGER " + m[1] + " " + m[2] + " ON " + m[3] + " " + each + " EXECUTE FUNCTION " + m[5] + "()"
	}
	return nil
}

// changedPostgres compares the triggers of all tables in the schema, and the functions that they call, with those that the
// migrations make, and the types of columns. It also looks for rules, for row security, for tables that are none, and for functions,
// operators, types and expressions that statements on the tables would use, also by references and statistics. Of indexes it compares only
// their expressions.
func changedPostgres(ctx context.Context, db Querier) (all []Difference, err error) {
	want, err := madePostgres()
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, selectPostgresTriggers, maxDefinition, maxDefinition, maxObjects)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	seen := map[string]bool{}
	for rows.Next() {
		var table, name, definition, state, function, body string
		if err = rows.Scan(&table, &name, &definition, &state, &function, &body); err != nil {
			return nil, err
		}
		made, known := want.triggers[name]
		switch known = known && strings.Contains(made, " ON "+table+" "); {
		case !known:
			all = append(all, Difference{fmt.Sprintf("the trigger %.100q of table %.100q is not of this program", name, table), false})
		case definition != made || state != "O" || body != want.bodies[function]:
			all = append(all, Difference{fmt.Sprintf("the trigger %s, or the function that it calls, is not the one that this program has made", name), false})
		}
		seen[name] = seen[name] || known
	}
	if err = rows.Err(); err != nil {
		return nil, err
	}
	for name := range want.triggers {
		if !seen[name] {
			all = append(all, Difference{"the trigger " + name + " is missing", false})
		}
	}
	for _, look := range []func(context.Context, Querier) ([]Difference, error){otherRelations, otherNames, want.otherColumns} {
		others, err := look(ctx, db)
		if err != nil {
			return nil, err
		}
		all = append(all, others...)
	}
	slices.SortFunc(all, func(x, y Difference) int { return strings.Compare(x.Reason, y.Reason) })
	return all, nil
}

func otherRelations(ctx context.Context, db Querier) (all []Difference, err error) {
	rows, err := db.QueryContext(ctx, selectPostgresRelations, maxObjects)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, what string
		var table bool
		if err := rows.Scan(&name, &what, &table); err != nil {
			return nil, err
		}
		all = append(all, Difference{fmt.Sprintf("the table %.100q %s", name, what), table})
	}
	return all, rows.Err()
}

func otherNames(ctx context.Context, db Querier) (all []Difference, err error) {
	rows, err := db.QueryContext(ctx, postgresNames, maxObjects)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, what string
		if err := rows.Scan(&name, &what); err != nil {
			return nil, err
		}
		all = append(all, Difference{fmt.Sprintf("the schema has %s %.100q, which can take the place of the one of PostgreSQL", what, name), false})
	}
	return all, rows.Err()
}

// maxColumns bounds the columns that are read. A writer of the database can add some in front of those of this program, up to 1600 in each
// table, and says with its settings in which order they come.
const maxColumns = maxObjects

// otherColumns compares columns. A comparison with one of another type can say anything, although its values are read as before.
func (o postgresObjects) otherColumns(ctx context.Context, db Querier) (all []Difference, err error) {
	rows, err := db.QueryContext(ctx, selectPostgresColumns, maxColumns+1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var c column
		var kind, collation string
		var computed bool
		if err := rows.Scan(&c.table, &c.name, &kind, &collation, &computed); err != nil {
			return nil, err
		}
		want, known := o.columns[c]
		if known && (kind != want || computed || kind == "text" && collation != "C") {
			all = append(all, Difference{fmt.Sprintf("the column %s of table %s is not of the type that this program has given it", c.name, c.table), false})
		}
	}
	if n > maxColumns {
		all = append(all, Difference{fmt.Sprintf("the tables have more than %d columns, so not all were compared", maxColumns), false})
	}
	return all, rows.Err()
}
