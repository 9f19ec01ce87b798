package vault

// The statements of this package. Its tables are secrets and vault_recipient. A comment
// above a statement names its parameters in their order.
const (
	secretColumns = `version, namespace, key, sealed, created_at, expires_at, mac`

	// A server makes no row of more than 128 KiB. Such a row is not read: it would take several times its length in memory.
	rowSize     = `octet_length(namespace) + octet_length(key) + octet_length(sealed) + octet_length(created_at) + octet_length(expires_at) + octet_length(coalesce(mac, ''))`
	fromSecrets = ` FROM secrets WHERE ` + rowSize + ` <= 131072`
	countLarge  = `SELECT count(*) FROM secrets WHERE ` + rowSize + ` > 131072`

	// namespace, now, latest creation. A secret with a lifetime that was created later has an end that means nothing,
	// because the clock was set back.
	countAll = `SELECT count(*), coalesce(max(version), 0), coalesce(string_agg(mac, ','), '') FROM (
		SELECT version, CASE WHEN octet_length(mac) <= 64 THEN mac ELSE '' END AS mac` + fromSecrets + ` AND namespace = ? AND (expires_at = '' OR expires_at > ? AND created_at <= ?) ORDER BY key) AS sorted`

	// namespace, now, latest creation
	selectAll = `SELECT ` + secretColumns + fromSecrets + ` AND namespace = ? AND (expires_at = '' OR expires_at > ? AND created_at <= ?) ORDER BY key`

	// namespace, key, now; counts the namespace's secrets except that key
	countOthers = `SELECT count(*), coalesce(sum(length(sealed)), 0) FROM secrets WHERE namespace = ? AND key != ? AND (expires_at = '' OR expires_at > ?)`

	insertOne = `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) VALUES (?, ?, ?, ?, ?, ?)`

	deleteOne = `DELETE FROM secrets WHERE namespace = ? AND key = ?`

	// now
	countExpired = `SELECT count(*)` + fromSecrets + ` AND expires_at != '' AND expires_at <= ?`

	// now
	deleteExpired = `DELETE` + fromSecrets + ` AND expires_at != '' AND expires_at <= ? RETURNING namespace, key`

	selectSealed = `SELECT ` + secretColumns + fromSecrets + ` ORDER BY namespace, key`

	updateSealed = `UPDATE secrets SET sealed = ?, mac = ? WHERE version = ?`

	// no row if there are no secrets
	selectRecipient = `SELECT CASE WHEN octet_length(recipient) <= 1024 THEN recipient ELSE '-' END FROM vault_recipient WHERE EXISTS (SELECT 1 FROM secrets)`

	setRecipient = `INSERT INTO vault_recipient (id, recipient) VALUES (1, ?)
		ON CONFLICT (id) DO UPDATE SET recipient = excluded.recipient`
)
