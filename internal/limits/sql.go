package limits

// The statements of this package. Its table is limits.
const (
	// A server stores no limits of more than 64 KiB. A longer text would take several times its length in memory, and
	// is read as one that cannot be decoded.
	shortKept = `CASE WHEN octet_length(kept) <= 65536 THEN kept ELSE '' END`

	selectAll = `SELECT namespace, ` + shortKept + ` FROM limits WHERE octet_length(namespace) <= 65536`
	selectOne = `SELECT ` + shortKept + ` FROM limits WHERE namespace = ?`
	setOne    = `INSERT INTO limits (namespace, changed_at, kept) VALUES (?, ?, ?)
		ON CONFLICT (namespace) DO UPDATE SET changed_at = excluded.changed_at, kept = excluded.kept`
	deleteOne = `DELETE FROM limits WHERE namespace = ?`
)
