package limits

// The statements of this package. Its table is limits.
const (
	selectAll = `SELECT namespace, kept FROM limits`
	selectOne = `SELECT kept FROM limits WHERE namespace = ?`
	setOne    = `INSERT INTO limits (namespace, changed_at, kept) VALUES (?, ?, ?)
		ON CONFLICT (namespace) DO UPDATE SET changed_at = excluded.changed_at, kept = excluded.kept`
	deleteOne = `DELETE FROM limits WHERE namespace = ?`
)
