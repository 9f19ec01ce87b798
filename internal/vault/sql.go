package vault

// The statements of this package. Its tables are secrets and vault_recipient. A comment
// above a statement names its parameters in their order.
const (
	secretColumns = `version, namespace, key, sealed, created_at, expires_at, mac`

	// namespace, now, latest creation. A secret with a lifetime that was created later has an end that means nothing,
	// because the clock was set back.
	countAll = `SELECT count(*), coalesce(max(version), 0), coalesce(string_agg(mac, ','), '') FROM (
		SELECT version, CASE WHEN octet_length(mac) <= 64 THEN mac ELSE '' END AS mac FROM secrets
		WHERE namespace = ? AND (expires_at = '' OR expires_at > ? AND created_at <= ?) ORDER BY key) AS sorted`

	// namespace, now, latest creation
	selectAll = `SELECT ` + secretColumns + ` FROM secrets
		WHERE namespace = ? AND (expires_at = '' OR expires_at > ? AND created_at <= ?) ORDER BY key`

	// namespace, key, now; counts the namespace's secrets except that key
	countOthers = `SELECT count(*), coalesce(sum(length(sealed)), 0) FROM secrets WHERE namespace = ? AND key != ? AND (expires_at = '' OR expires_at > ?)`

	insertOne = `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) VALUES (?, ?, ?, ?, ?, ?)`

	deleteOne = `DELETE FROM secrets WHERE namespace = ? AND key = ?`

	// now
	countExpired = `SELECT count(*) FROM secrets WHERE expires_at != '' AND expires_at <= ?`

	// now
	deleteExpired = `DELETE FROM secrets WHERE expires_at != '' AND expires_at <= ? RETURNING namespace, key`

	selectSealed = `SELECT ` + secretColumns + ` FROM secrets ORDER BY namespace, key`

	updateSealed = `UPDATE secrets SET sealed = ?, mac = ? WHERE version = ?`

	// no row if there are no secrets
	selectRecipient = `SELECT recipient FROM vault_recipient WHERE EXISTS (SELECT 1 FROM secrets)`

	setRecipient = `INSERT INTO vault_recipient (id, recipient) VALUES (1, ?)
		ON CONFLICT (id) DO UPDATE SET recipient = excluded.recipient`
)
