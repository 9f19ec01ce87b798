package store

import (
	"context"
	"database/sql"
	"time"
)

// Querier runs queries. It is the database for reading, or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// NotIndexed follows a table's name in a statement that may not use an index: a writer of the database can make one that
// lacks rows. In SQLite, numbers of rows are found nevertheless. PostgreSQL gets the statement without it, because there the
// numbers have an index as well; see AllRows.
const NotIndexed = ` NOT INDEXED`

// AllRows is NotIndexed for a statement that reads the whole table. It holds in PostgreSQL, too: a sample of a table uses no
// index, and this one has all rows. There an index has a condition that lies if that calls a function which has changed since.
const AllRows = NotIndexed + ` /* all */`

// allRowsPostgres stands in place of AllRows.
const allRowsPostgres = ` TABLESAMPLE SYSTEM (100)`

// timeForm is RFC 3339 with nine digits after the point. UTC times in this form sort in the
// order of time.
const timeForm = "2006-01-02T15:04:05.000000000Z07:00"

// FormatTime formats a time for a column of the database.
func FormatTime(t time.Time) string { return t.UTC().Format(timeForm) }

// ParseTime parses the output of FormatTime.
func ParseTime(text string) (time.Time, error) { return time.Parse(timeForm, text) }

// The statements of this package. Each package that owns tables has a file sql.go.

// Used in database.go. application_id and user_version identify the program and release
// that a database belongs to.
const (
	selectVersions = `SELECT user_version, application_id FROM pragma_user_version, pragma_application_id`

	selectSchema = `SELECT user_version, (SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'goose%' AND name NOT LIKE 'sqlite%')
		FROM pragma_user_version`
)

// Used in write.go. Each Update in a transaction has a savepoint.
const (
	beginJob   = `SAVEPOINT job`
	undoJob    = `ROLLBACK TO job`
	endJob     = `RELEASE job`
	moveTheLog = `PRAGMA wal_checkpoint(PASSIVE)`
)

// Used in notes.go and notes_file.go. A row says how many bytes of a file are carried out.
const (
	selectNoted = `SELECT file FROM notes`

	// file
	selectApplied    = `SELECT applied FROM notes WHERE file = ?`
	selectAppliedMAC = `SELECT applied, coalesce(mac, '') FROM notes WHERE file = ?`
	deleteApplied    = `DELETE FROM notes WHERE file = ?`

	// file, applied, mac
	setApplied = `INSERT INTO notes (file, applied, mac) VALUES (?, ?, ?) ON CONFLICT (file) DO UPDATE SET applied = excluded.applied, mac = excluded.mac`
)

// Used in schema.go.
const (
	// longest definition, most objects
	selectObjects = `SELECT type, name, tbl_name, coalesce(substr(sql, 1, ?), '') FROM sqlite_schema
		WHERE type IN ('trigger', 'view') OR tbl_name = 'notes' OR tbl_name LIKE 'audit%' LIMIT ?`

	selectUserVersion = `SELECT user_version FROM pragma_user_version`

	checkAudit = `SELECT substr(integrity_check, 1, 200) FROM pragma_integrity_check('audit') LIMIT 5`
)

// Used in schema_postgres.go.
const (
	// The functions of these statements are those of PostgreSQL: the tables are compared before anything is known of functions in the schema.
	// longest definition, longest body, most triggers
	selectPostgresTriggers = `SELECT CAST(c.relname AS TEXT), CAST(t.tgname AS TEXT), pg_catalog.left(pg_catalog.pg_get_triggerdef(t.oid, true), CAST(? AS INTEGER)), CAST(t.tgenabled AS TEXT), CAST(p.proname AS TEXT), CASE WHEN p.proconfig IS NULL THEN pg_catalog.left(p.prosrc, CAST(? AS INTEGER)) ELSE '' END
		FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE NOT t.tgisinternal AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = pg_catalog.current_schema()) LIMIT ?`

	// Tables of this program. Others may be in the same schema.
	postgresTables = `('audit', 'audit_checkpoints', 'audit_rotations', 'audit_dropped', 'approvals', 'grants', 'packages', 'secrets', 'vault_recipient',
		'executions', 'artifacts', 'limits', 'sessions', 'servers', 'peers', 'signals', 'kept_bytes', 'database_id', 'goose_db_version')`

	// tables with an index, a constraint, a default, a column or statistics that use a function, an operator, a type or the like which
	// PostgreSQL itself has not made: what that has made is no dependency. The planner calls functions of statistics and of indexes, and
	// these can change the connection.
	postgresUses = `SELECT CASE of.relname WHEN 'pg_class' THEN coalesce((SELECT indrelid FROM pg_index WHERE indexrelid = d.objid), d.objid)
			WHEN 'pg_constraint' THEN (SELECT conrelid FROM pg_constraint WHERE oid = d.objid)
			WHEN 'pg_attrdef' THEN (SELECT adrelid FROM pg_attrdef WHERE oid = d.objid)
			WHEN 'pg_statistic_ext' THEN (SELECT stxrelid FROM pg_statistic_ext WHERE oid = d.objid) END
		FROM pg_depend AS d JOIN pg_class AS of ON of.oid = d.classid JOIN pg_class AS what ON what.oid = d.refclassid
		WHERE of.relname IN ('pg_class', 'pg_constraint', 'pg_attrdef', 'pg_statistic_ext') AND what.relname NOT IN ('pg_class', 'pg_constraint', 'pg_namespace', 'pg_extension', 'pg_am')`

	// Expressions that the migrations make, each after its table: constraints, conditions of indexes, and a default.
	postgresMade = `('audit CHECK ((seq > 0))', 'audit (action <> ''execute''::text)', 'audit_checkpoints CHECK ((size > 0))', 'audit_rotations CHECK ((size > 0))', 'vault_recipient CHECK ((id = 1))',
		'executions (stdout_blob IS NOT NULL)', 'executions (stderr_blob IS NOT NULL)', 'sessions CHECK ((state = ANY (ARRAY[''live''::text, ''expired''::text])))',
		'approvals CHECK ((state = ANY (ARRAY[''pending''::text, ''approved''::text, ''denied''::text, ''expired''::text])))', 'approvals (state = ''pending''::text)',
		'grants CHECK ((scope = ANY (ARRAY[''once''::text, ''session''::text, ''duration''::text, ''always''::text])))', 'goose_db_version now()')`

	// tables and expressions of their constraints, indexes and columns; '' is an expression that no migration makes. Also one of functions
	// that PostgreSQL itself has made can lie: some count as immutable although their results depend on settings of the connection,
	// such as CAST(bytea AS TEXT). Others, such as set_config, change the connection that inserts a row. Constraints of the types that are
	// left out have no expression.
	postgresExpressions = `SELECT conrelid, pg_catalog.pg_get_constraintdef(oid) FROM pg_constraint WHERE contype NOT IN ('p', 'u', 'n', 't')
		UNION ALL SELECT indrelid, CASE WHEN indexprs IS NULL THEN pg_catalog.pg_get_expr(indpred, indrelid) END FROM pg_index WHERE indexprs IS NOT NULL OR indpred IS NOT NULL
		UNION ALL SELECT adrelid, pg_catalog.pg_get_expr(adbin, adrelid) FROM pg_attrdef`

	// The functions that statements and triggers call. Other programs may have functions in the same schema.
	postgresCalled = `('clock_timestamp', 'count', 'current_schema', 'current_setting', 'format', 'format_type', 'hashtextextended', 'left', 'length', 'lower', 'max', 'md5', 'min', 'now',
		'octet_length', 'pg_advisory_lock', 'pg_advisory_unlock', 'pg_advisory_xact_lock', 'pg_get_constraintdef', 'pg_get_expr', 'pg_get_triggerdef', 'pg_is_in_recovery', 'pg_notify', 'pg_try_advisory_lock', 'quote_ident', 'random',
		'set_config', 'string_agg', 'substr', 'sum', 'to_regclass', 'unnest')`

	// functions and operators in the schema that PostgreSQL could take for its own ones of the same name, because their arguments
	// have its types. No statement has an array: an extension for arrays has operators of these names.
	postgresNames = `WITH own AS (SELECT oid FROM pg_namespace WHERE nspname = pg_catalog.current_schema()), pg AS (SELECT oid FROM pg_namespace WHERE nspname = 'pg_catalog'),
			known AS (SELECT oid FROM pg_type WHERE typnamespace = (SELECT oid FROM pg) AND oid NOT IN (SELECT typarray FROM pg_type))
		SELECT CAST(p.proname AS TEXT), 'a function' FROM pg_proc AS p JOIN own ON own.oid = p.pronamespace
			WHERE p.proname IN ` + postgresCalled + `
			AND NOT EXISTS (SELECT 1 FROM pg_proc AS q JOIN pg ON pg.oid = q.pronamespace WHERE q.proname = p.proname AND q.proargtypes = p.proargtypes)
			AND NOT EXISTS (SELECT 1 FROM pg_catalog.unnest(p.proargtypes) AS t (oid) WHERE t.oid NOT IN (SELECT oid FROM known))
		UNION ALL SELECT CAST(o.oprname AS TEXT), 'an operator' FROM pg_operator AS o JOIN own ON own.oid = o.oprnamespace
			WHERE o.oprname IN ('=', '<>', '<', '<=', '>', '>=', '||', '+', '-') AND o.oprleft IN (SELECT oid FROM known) AND o.oprright IN (SELECT oid FROM known)
			AND NOT EXISTS (SELECT 1 FROM pg_operator AS q JOIN pg ON pg.oid = q.oprnamespace WHERE q.oprname = o.oprname AND q.oprleft = o.oprleft AND q.oprright = o.oprright)
		LIMIT ?`

	// most
	selectPostgresColumns = `SELECT CAST(c.relname AS TEXT), CAST(a.attname AS TEXT), pg_catalog.format_type(a.atttypid, a.atttypmod), coalesce((SELECT CAST(collname AS TEXT) FROM pg_collation WHERE oid = a.attcollation), ''), a.attgenerated <> ''
		FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'r' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = pg_catalog.current_schema()) AND c.relname IN ` + postgresTables + ` LIMIT ?`

	// most. Those that make a table unreadable are first: other tables in the schema can have any number of rules. PostgreSQL changes tables
	// of others by itself if they refer to one, and a part of another table has the expressions of that, too.
	selectPostgresRelations = `WITH mine AS (SELECT *, relname IN ` + postgresTables + ` AS ours FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = pg_catalog.current_schema()) AND relkind NOT IN ('i', 'I', 'S'))
		SELECT CAST(relname AS TEXT), 'has a rule', false FROM mine WHERE relkind = 'r' AND oid IN (SELECT ev_class FROM pg_rewrite)
		UNION ALL SELECT CAST(relname AS TEXT), 'has policies for rows', false FROM mine WHERE relrowsecurity
		UNION ALL SELECT CAST(relname AS TEXT), 'has child tables', false FROM mine WHERE oid IN (SELECT inhparent FROM pg_inherits)
		UNION ALL SELECT CAST(relname AS TEXT), 'is a partition or a child of another table, whose expressions it uses', false FROM mine WHERE ours AND oid IN (SELECT inhrelid FROM pg_inherits)
		UNION ALL SELECT CAST(relname AS TEXT), 'is referred to by another table, whose triggers it calls', false FROM mine WHERE ours AND oid IN (SELECT confrelid FROM pg_constraint WHERE contype = 'f')
		UNION ALL SELECT CAST(relname AS TEXT), 'is not a table', relname IN ('audit', 'audit_checkpoints', 'audit_rotations', 'audit_dropped') FROM mine WHERE relkind <> 'r' AND ours
		UNION ALL SELECT CAST(relname AS TEXT), 'is not logged, so it loses all rows when the server crashes', false FROM mine WHERE relpersistence <> 'p' AND ours
		UNION ALL SELECT CAST(relname AS TEXT), 'has an index, a constraint, a default, a column or statistics that use what others have made', false FROM mine
			WHERE ours AND oid IN (` + postgresUses + `)
		UNION ALL SELECT CAST(relname AS TEXT), 'has an index, a constraint, a default or a column with an expression that this program has not made', false FROM mine
			WHERE ours AND oid IN (SELECT of FROM (` + postgresExpressions + `) AS all_of (of, text)
				WHERE of = mine.oid AND coalesce(CAST(mine.relname AS TEXT) || ' ' || text, '') NOT IN ` + postgresMade + `)
		ORDER BY 3 DESC LIMIT ?`
)

// Used in look.go.
const countByStatus = `SELECT status, count(*) FROM executions GROUP BY status`

// Used in watch.go.
const (
	selectTopics  = `SELECT topic FROM signals`
	selectVersion = `SELECT version FROM signals WHERE topic = ?`
	setVersion    = `INSERT INTO signals (topic, version) VALUES (?, ?) ON CONFLICT (topic) DO UPDATE SET version = excluded.version`
)

// Used in postgres_prepare.go. The search path is any one before these.
const (
	selectRecovery = `SELECT pg_catalog.pg_is_in_recovery()`

	// If current_schema() is NULL, it does not change the search path, and selects nothing.
	setOwnNames = `SELECT pg_catalog.set_config('search_path', pg_catalog.format('%I, pg_temp', s), false) FROM (SELECT pg_catalog.current_schema() AS s) AS own WHERE s IS NOT NULL`

	// Views and foreign tables in place of tables are refused by those releases of PostgreSQL that can do so, from 12.20, 13.16, 14.13, 15.8 and
	// 16.4 on. Otherwise a view for a moment could change the connection that reads it.
	setTablesOnly = `SELECT CASE WHEN pg_catalog.current_setting($1, true) IS NOT NULL THEN pg_catalog.set_config($1, 'view, foreign-table', false) END`
	tablesOnly    = `restrict_nonsystem_relation_kind`

	// path. The first column is the one that the connection has without it, or empty if there is no schema.
	setPath = `SELECT CASE WHEN pg_catalog.current_schema() IS NULL THEN '' ELSE pg_catalog.format('%I, pg_temp', pg_catalog.current_schema()) END, pg_catalog.set_config('search_path', $1, false)`

	// These make a connection like a new one. A setting of the role, of the database and of the URL stays.
	resetAll  = `RESET ALL`
	resetRole = `RESET ROLE`

	// path. Also whether a statement was prepared by another one: it may have the name of one of the driver.
	setPathAgain = `SELECT pg_catalog.set_config('search_path', $1, false), EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql)`
)

// Used in postgres.go and postgres_lease.go. The keys of the locks are hashes of texts that
// name the schema, because a lock is valid in the whole database.
const (
	// The types of arguments are exactly those of the functions and operators of PostgreSQL. Otherwise those of the same name in
	// the schema would be taken, which a writer of the database may have made.
	ownSchema = `CAST(current_schema() AS TEXT)`

	// milliseconds to wait. A commit waits until it is on the disk, because callers are told then that something is recorded. The values
	// other than off all do that, and some of them wait for other servers as well. The server's own value may change at any time.
	lockWriter = `SELECT set_config('lock_timeout', ?, true),
		set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true),
		pg_advisory_xact_lock(hashtextextended('sandboxmcp write ' || ` + ownSchema + `, CAST(0 AS BIGINT)))`

	// Tables are made after the one of the versions, so the question for one of them is first.
	selectGoose        = `SELECT current_schema(), to_regclass(quote_ident(` + ownSchema + `) || '.audit') IS NOT NULL, to_regclass(quote_ident(` + ownSchema + `) || '.goose_db_version') IS NOT NULL`
	selectGooseVersion = `SELECT coalesce(max(version_id), 0) FROM goose_db_version`

	selectDatabaseID = `SELECT id FROM database_id`

	// Used in clock.go.
	selectClock = `SELECT clock_timestamp()`

	// name
	tryLeaseLock  = `SELECT pg_try_advisory_lock(hashtextextended('sandboxmcp lease ' || ` + ownSchema + ` || ' ' || CAST(? AS TEXT), CAST(0 AS BIGINT)))`
	freeLeaseLock = `SELECT pg_advisory_unlock(hashtextextended('sandboxmcp lease ' || ` + ownSchema + ` || ' ' || CAST(? AS TEXT), CAST(0 AS BIGINT)))`

	selectTrue = `SELECT true`

	// Used in watch.go. topic
	raiseVersion = `INSERT INTO signals (topic, version) VALUES (?, 1) ON CONFLICT (topic) DO UPDATE SET version = signals.version + 1`
	notifyAll    = `SELECT pg_notify('sandboxmcp', ` + ownSchema + ` || ' ' || CAST(? AS TEXT))`
	listenToAll  = `LISTEN sandboxmcp`
)
