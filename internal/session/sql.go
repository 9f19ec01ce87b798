package session

// The statements of this package. Its table is sessions. A row is live from when a session
// was made, and changed_at is the time of that.
const (
	// namespace, id, owner, created, JSON
	insertLive = `INSERT INTO sessions (namespace, session_id, owner, state, changed_at, info) VALUES (?, ?, ?, 'live', ?, ?)
		ON CONFLICT (namespace, session_id, owner) DO UPDATE SET state = excluded.state, changed_at = excluded.changed_at, info = excluded.info`

	// namespace, id
	selectID = `SELECT owner, state, changed_at, '' FROM sessions WHERE namespace = ? AND session_id = ?`

	// namespace, id
	selectIDAt = `SELECT s.owner, s.state, s.changed_at, COALESCE(v.address, '') FROM sessions s LEFT JOIN peers v ON v.owner = s.owner
		WHERE s.namespace = ? AND s.session_id = ?`

	// the owners of live sessions
	selectOwners = `SELECT DISTINCT owner FROM sessions WHERE state = 'live'`

	// now, namespace, id, owner, created
	expireOne = `UPDATE sessions SET state = 'expired', changed_at = ? WHERE namespace = ? AND session_id = ? AND owner = ? AND changed_at = ?`

	// now, owner
	expireOwner = `UPDATE sessions SET state = 'expired', changed_at = ? WHERE owner = ? AND state = 'live'`

	// namespace, id, owner, created
	deleteOne = `DELETE FROM sessions WHERE namespace = ? AND session_id = ? AND owner = ? AND changed_at = ?`

	// namespace, id
	deleteExpiredID = `DELETE FROM sessions WHERE namespace = ? AND session_id = ? AND state = 'expired'`

	// owner, address
	insertServer = `INSERT INTO peers (owner, address) VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET address = excluded.address`

	// owner
	deleteServer = `DELETE FROM peers WHERE owner = ?`

	// every server but the owner
	selectServers = `SELECT owner, address FROM peers WHERE owner <> ? ORDER BY owner`

	// namespace, id, owner: the other servers that have a live session of the id
	selectRivals = `SELECT s.owner FROM sessions s JOIN peers v ON v.owner = s.owner WHERE s.namespace = ? AND s.session_id = ? AND s.owner <> ? AND s.state = 'live'`

	// before
	deleteExpired = `DELETE FROM sessions WHERE state = 'expired' AND changed_at < ?`
)
