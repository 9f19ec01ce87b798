package limits

// The statements of this package. Its table is limits.
const (
	selectAll = `SELECT namespace, kept FROM limits`
	selectOne = `SELECT kept FROM limits WHERE namespace = ?`
	setOne    = `INSERT OR REPLACE INTO limits (namespace, changed_at, kept) VALUES (?, ?, ?)`
	deleteOne = `DELETE FROM limits WHERE namespace = ?`
)
