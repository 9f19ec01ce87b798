package store

import (
	"context"
	"database/sql"
	"time"
)

// Querier reads: it is the database for reading or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// timeForm is RFC 3339 with nine digits after the point. Times in UTC sort like their
// texts.
const timeForm = "2006-01-02T15:04:05.000000000Z07:00"

// FormatTime returns the text of a time for a column of the database.
func FormatTime(t time.Time) string { return t.UTC().Format(timeForm) }

// ParseTime reads a text that FormatTime has made.
func ParseTime(text string) (time.Time, error) { return time.Parse(timeForm, text) }

// The statements of this package follow. Each package that owns tables has a file of this
// name.

// Of database.go. SQLite's own numbers tell whose file it is and of which release.
const (
	selectVersions = `SELECT user_version, application_id FROM pragma_user_version, pragma_application_id`

	selectSchema = `SELECT user_version, (SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'goose%' AND name NOT LIKE 'sqlite%')
		FROM pragma_user_version`
)

// Of write.go: each Update of a transaction has a savepoint.
const (
	beginJob   = `SAVEPOINT job`
	undoJob    = `ROLLBACK TO job`
	endJob     = `RELEASE job`
	moveTheLog = `PRAGMA wal_checkpoint(PASSIVE)`
)

// Of look.go.
const countByStatus = `SELECT status, count(*) FROM executions GROUP BY status`

// Of watch.go.
const (
	selectTopics  = `SELECT topic FROM signals`
	selectVersion = `SELECT version FROM signals WHERE topic = ?`
	setVersion    = `INSERT INTO signals (topic, version) VALUES (?, ?) ON CONFLICT (topic) DO UPDATE SET version = excluded.version`
)
