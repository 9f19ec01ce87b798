package audit

import (
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// The statements of this package. Its tables are audit, audit_checkpoints, audit_rotations
// and audit_dropped; see the package's documentation. A comment above a statement names its
// parameters in their order.

const columns = `id, namespace, seq, timestamp, action, phase, request_id, session_id, language,
	exit_code, duration_ms, success, detail, actor, resource_usage, metadata, prev, hash`

// Short forms of columns. A server reads these columns of rows that a writer of the database may have made. A value that
// is far longer than those of servers becomes a text that no signature, MAC or chain fits. The length is in the row's
// head, so the value itself is not read.
const (
	shortHash = `CASE WHEN octet_length(hash) <= 1024 THEN hash ELSE '' END`
	shortMAC  = `CASE WHEN mac IS NULL THEN '' WHEN octet_length(mac) <= 1024 THEN mac ELSE '-' END`
	shortNote = `CASE WHEN octet_length(note) <= 1024 THEN note ELSE '' END`
	shortEdge = `CASE WHEN octet_length(edge) <= 2048 THEN edge END`

	// bytes of a row's texts. Numbers are not counted, because no column of them has texts.
	rowSize = `octet_length(id) + octet_length(namespace) + octet_length(timestamp) + octet_length(action) +
		octet_length(phase) + octet_length(request_id) + octet_length(session_id) + octet_length(language) + octet_length(detail) + octet_length(actor) +
		octet_length(coalesce(resource_usage, '')) + octet_length(coalesce(metadata, '')) + octet_length(prev) + octet_length(hash) + octet_length(coalesce(mac, ''))`

	newestNote = `SELECT size, ` + shortNote + `, ` + shortEdge + ` FROM `
)

// Statements on entries.
const (
	// If ?19 is the hash of the record's last entry, the caller's cached end is current and
	// the row is inserted. If it is another hash, seq becomes NULL: SQLite fails, and a
	// trigger of PostgreSQL inserts nothing. If it is NULL, the row is inserted without a
	// check. One statement serves both cases, because compiling it takes longer than running
	// it. INSERT … SELECT … WHERE would take twice as long to run, and RETURNING a sixth longer.
	insertEntry = `INSERT INTO audit (` + columns + `, mac, position)
		VALUES (?1,?2,CASE WHEN CAST(?19 AS TEXT) IS NULL OR (SELECT hash FROM audit ORDER BY position DESC LIMIT 1) = ?19 THEN CAST(?3 AS BIGINT) END,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?20,?21)`

	selectLastHash = `SELECT ` + shortHash + ` FROM audit ORDER BY position DESC LIMIT 1`

	// position. The caller compares: a writer of the database can make a comparison there say anything.
	selectHashAt = `SELECT ` + shortHash + ` FROM audit` + store.NotIndexed + ` WHERE position = ?`

	selectLastPosition = `SELECT coalesce(max(position), 0) FROM audit`

	// namespace. The third column is the record's last position.
	selectEnd = `SELECT seq, ` + shortHash + `, (SELECT coalesce(max(position), 0) FROM audit) FROM audit WHERE namespace = ? ORDER BY seq DESC LIMIT 1`

	selectEntries = `SELECT position, coalesce(mac, ''), ` + columns + ` FROM audit ORDER BY position`

	// action. Metadata above 8 MiB is read as empty. A writer of the database can make an action another type, to which the text of a
	// server is not equal.
	selectAllOf = `SELECT CASE WHEN octet_length(request_id) <= 1024 THEN request_id ELSE '' END,
		CASE WHEN octet_length(coalesce(metadata, '')) <= 8388608 THEN coalesce(metadata, '') ELSE '' END
		FROM audit` + store.AllRows + ` WHERE CAST(action AS TEXT) = ? ORDER BY position`

	// The texts of a row that is larger than those of servers are read as empty, so its hash is wrong.
	selectWhole = `SELECT position, CASE WHEN small THEN coalesce(mac, '') ELSE '' END, CASE WHEN small THEN id ELSE '' END, CASE WHEN small THEN namespace ELSE '' END, seq,
		CASE WHEN small THEN timestamp ELSE '' END, CASE WHEN small THEN action ELSE '' END, CASE WHEN small THEN phase ELSE '' END, CASE WHEN small THEN request_id ELSE '' END,
		CASE WHEN small THEN session_id ELSE '' END, CASE WHEN small THEN language ELSE '' END, exit_code, duration_ms, success, CASE WHEN small THEN detail ELSE '' END,
		CASE WHEN small THEN actor ELSE '' END, CASE WHEN small THEN resource_usage END, CASE WHEN small THEN metadata END, CASE WHEN small THEN prev ELSE '' END, CASE WHEN small THEN hash ELSE '' END
		FROM (SELECT *, ` + rowSize + ` <= 16777216 AS small FROM audit` + store.NotIndexed + ` WHERE `

	// position
	selectAt = selectWhole + `position = ?) AS one`

	// after
	selectAfter = selectWhole + `position > ?) AS later ORDER BY position`

	// before
	selectLatest = selectWhole + `position < ?) AS latest ORDER BY position DESC LIMIT 100`

	// before. The position from which on there are 1000 entries; 0 if there is none.
	selectBatch = `SELECT coalesce(min(position), 0) FROM (SELECT position FROM audit` + store.NotIndexed + ` WHERE position > 0 AND position < ? ORDER BY position DESC LIMIT 1000) AS latest`

	// from, before, namespace, two actions. Rows that are larger than those of servers are left out. PostgreSQL looks for an expression in
	// no index of a column, so it uses one of positions.
	selectOfAction = `SELECT position, ` + shortMAC + `, ` + columns + ` FROM audit` + store.NotIndexed + `
		WHERE position >= ? AND position < ? AND CAST(namespace AS TEXT) || '' = ? AND CAST(action AS TEXT) || '' IN (?, ?)
		AND octet_length(detail) + octet_length(coalesce(metadata, '')) <= 8388608 ORDER BY position DESC`

	// namespace, action, which is not that of runs
	selectNewestMetadata = `SELECT seq, timestamp, CASE WHEN octet_length(coalesce(metadata, '')) <= 8388608 THEN coalesce(metadata, '') ELSE '' END
		FROM audit WHERE namespace = ? AND action = ? AND ` + isIndexed + ` ORDER BY seq DESC`

	// last position
	selectFirstEntries = `SELECT position, coalesce(mac, ''), ` + columns + ` FROM audit WHERE position <= ? ORDER BY position`

	// after, how many. All hashes and MACs in one row take a third of the time of many rows.
	selectHashes = `SELECT count(*), coalesce(max(position), 0), coalesce(string_agg(hash || mac, ',' ORDER BY position), '')
		FROM (SELECT position, ` + shortHash + ` AS hash, ` + shortMAC + ` AS mac FROM audit WHERE position > ? ORDER BY position LIMIT ?) AS next`

	// after, time. The timestamp is empty if there are no such entries.
	countUnsigned = `SELECT count(*), coalesce(min(timestamp), '') FROM audit WHERE position > ? AND timestamp < ?`

	// after, before, time
	selectFirstYoung = `SELECT position FROM audit WHERE position > ? AND position < ? AND timestamp >= ? ORDER BY position LIMIT 1`

	// last position, bytes
	selectLarge = `SELECT position FROM audit WHERE position <= ? AND ` + rowSize + ` > ? LIMIT 1`

	// last position
	deleteEntries = `DELETE FROM audit WHERE position <= ?`
)

// Statements on checkpoints.
const (
	insertCheckpoint = `INSERT INTO audit_checkpoints (size, note, edge) VALUES (?,?,?)`

	selectCheckpoints = `SELECT size, note, edge FROM audit_checkpoints ORDER BY size`

	selectNewest = newestNote + `audit_checkpoints ORDER BY size DESC LIMIT 1`

	// less than, more than
	selectNewestBetween = newestNote + `audit_checkpoints WHERE size < ? AND size > ? ORDER BY size DESC LIMIT 1`

	// size. See selectHashAt.
	selectNoteAt = `SELECT ` + shortNote + ` FROM audit_checkpoints` + store.NotIndexed + ` WHERE size = ?`

	// less than
	deleteCheckpoints = `DELETE FROM audit_checkpoints WHERE size < ?`
)

// Statements on dropped entries.
const (
	insertRotation = `INSERT INTO audit_rotations (size, note, edge) VALUES (?,?,?)`

	selectRotation = newestNote + `audit_rotations ORDER BY size DESC LIMIT 1`

	// less than
	deleteRotations = `DELETE FROM audit_rotations WHERE size < ?`

	setDroppedEnd = `INSERT INTO audit_dropped (namespace, seq, hash) VALUES (?,?,?)
		ON CONFLICT (namespace) DO UPDATE SET seq = excluded.seq, hash = excluded.hash`

	// namespace. There is always a row, as in selectEnd.
	selectDroppedEnd = `SELECT coalesce((SELECT seq FROM audit_dropped WHERE namespace = ?1), 0),
		coalesce((SELECT ` + shortHash + ` FROM audit_dropped WHERE namespace = ?1), '` + zeroHash + `'), coalesce(max(position), 0) FROM audit`

	selectDroppedEnds = `SELECT CASE WHEN octet_length(namespace) <= 65536 THEN namespace ELSE '' END, seq, ` + shortHash + ` FROM audit_dropped ORDER BY namespace`
)

// Execute is the action of a run. Most entries have it, so the index of actions leaves it
// out; see migrations/sqlite/0011_actions.sql of the store.
const Execute = "execute"

// isIndexed is the condition of the index of actions. It must be written as in the
// migration.
const (
	isIndexed = `action <> 'execute'`
	isExecute = `action = 'execute'`
)

// listed returns the statements that count and list the entries of a namespace that match a
// query, and their arguments. The list statement takes the limit as one more argument.
func listed(ns sandboxmcp.Namespace, q sandboxmcp.AuditQuery) (count, list string, args []any) {
	where, args := []string{"namespace = ?1"}, []any{string(ns)}
	add := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, condition+" ?"+strconv.Itoa(len(args)))
	}
	if !q.Since.IsZero() {
		add("timestamp >=", formatTime(q.Since))
	}
	if q.After > 0 {
		add("seq >", q.After)
	}
	all := strings.Join(where, ` AND `)
	count = `SELECT count(*) FROM audit WHERE ` + all
	switch {
	case q.Action == Execute:
		if q.Since.IsZero() { // then each count reads only an index
			count = `SELECT (` + count + `) - (` + count + ` AND ` + isIndexed + `)`
		} else {
			count += ` AND ` + isExecute
		}
		all += ` AND ` + isExecute
	case q.Action != "":
		add(isIndexed+" AND action =", q.Action)
		all = strings.Join(where, ` AND `)
		count = `SELECT count(*) FROM audit WHERE ` + all
	}
	order := "DESC"
	if q.OldestFirst {
		order = "ASC"
	}
	// Rows of more than 16 MiB are left out: servers write none that large.
	list = `SELECT ` + columns + ` FROM audit WHERE ` + all + ` AND ` + rowSize + ` <= 16777216 ORDER BY seq ` + order + ` LIMIT ?` + strconv.Itoa(len(args)+1)
	return count, list, args
}
