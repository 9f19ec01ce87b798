package installed

// The statements of this package. Its table is packages.
const (
	selectAll = `SELECT namespace, language, digest, added_at, requested FROM packages ORDER BY namespace, added_at DESC, digest`
	selectOf  = `SELECT namespace, language, digest, added_at, requested FROM packages WHERE namespace = ? ORDER BY added_at DESC, digest`
	setOne    = `INSERT INTO packages (namespace, language, digest, added_at, requested) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (namespace, language, digest) DO UPDATE SET added_at = excluded.added_at, requested = excluded.requested`
	deleteOne = `DELETE FROM packages WHERE namespace = ? AND language = ? AND digest = ?`
)
