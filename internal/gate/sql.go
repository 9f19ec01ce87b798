package gate

// The statements of this package. Its tables are approvals and grants. A comment above a
// statement names its parameters in their order.

const (
	approvalColumns = `id, namespace, subject, digest, reason, actor, session_id, request_id, state, asked_at, expires_at, decided_at, grant_id`

	// A server makes no row of more than 128 KiB. Such a row is not read: it would take several times its length in memory.
	fromApprovals = ` FROM approvals WHERE octet_length(id) + octet_length(namespace) + octet_length(subject) + octet_length(digest) + octet_length(reason) + octet_length(actor) +
		octet_length(session_id) + octet_length(request_id) + octet_length(state) + octet_length(asked_at) + octet_length(expires_at) + octet_length(decided_at) + octet_length(grant_id) <= 131072`

	insertApproval = `INSERT INTO approvals (` + approvalColumns + `, decided_by) VALUES (?,?,?,?,?,?,?,?,?,?,?,'','','')`

	selectApproval = `SELECT ` + approvalColumns + fromApprovals + ` AND id = ?`

	// id, namespace, namespace; '*' selects all namespaces
	selectApprovalOf = `SELECT ` + approvalColumns + fromApprovals + ` AND id = ? AND (? = '*' OR namespace = ?)`

	// now, namespace, namespace; '' selects all namespaces
	selectPending = `SELECT ` + approvalColumns + fromApprovals + `
		AND state = 'pending' AND expires_at > ? AND (? = '' OR namespace = ?) ORDER BY asked_at, id`

	// denied since
	selectDenied = `SELECT ` + approvalColumns + fromApprovals + ` AND state = 'denied' AND decided_at > ?`

	// namespace, digest, denied since, now, made until
	selectSame = `SELECT ` + approvalColumns + fromApprovals + ` AND namespace = ? AND digest = ? AND (
			state = 'pending' OR state = 'denied' AND decided_at > ? OR state = 'approved' AND EXISTS (
				SELECT 1 FROM grants WHERE id = grant_id AND revoked_at = '' AND (expires_at = '' OR expires_at > ? AND granted_at <= ?) AND scope <> 'session' AND request_id = ''))
		ORDER BY state = 'pending' DESC, decided_at DESC`

	selectPendingID = `SELECT id` + fromApprovals + ` AND namespace = ? AND digest = ? AND state = 'pending' AND expires_at > ?`

	// A count of values takes any type, so a function of that name for numbers in the schema would be called.
	countPending = `SELECT coalesce(sum(CASE WHEN namespace = ? THEN 1 ELSE 0 END), 0), count(*) FROM approvals WHERE state = 'pending' AND expires_at > ?`

	decideApproval = `UPDATE approvals SET state = ?, decided_at = ?, decided_by = ?, grant_id = ? WHERE id = ? AND state = 'pending'`

	lapseApprovals = `UPDATE approvals SET state = 'expired' WHERE state = 'pending' AND expires_at <= ?`

	deleteApprovals = `DELETE FROM approvals WHERE state <> 'pending' AND expires_at <= ?`
)

const (
	grantColumns = `id, namespace, subject, digest, scope, session_id, request_id, approval_id, actor, granted_at, expires_at, mac`

	// See fromApprovals.
	grantSize = `octet_length(id) + octet_length(namespace) + octet_length(subject) + octet_length(digest) + octet_length(scope) + octet_length(session_id) + octet_length(request_id) + octet_length(approval_id) +
		octet_length(actor) + octet_length(granted_at) + octet_length(expires_at) + octet_length(coalesce(mac, ''))`
	fromGrants = ` FROM grants WHERE ` + grantSize + ` <= 131072`
	countLarge = `SELECT count(*) FROM grants WHERE revoked_at = '' AND ` + grantSize + ` > 131072`

	insertGrant = `INSERT INTO grants (id, namespace, subject, digest, scope, session_id, request_id, approval_id, actor, granted_at, expires_at, revoked_at, mac)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)`

	// id, now, made until
	selectGrant = `SELECT ` + grantColumns + fromGrants + ` AND id = ? AND revoked_at = '' AND (expires_at = '' OR expires_at > ? AND granted_at <= ?)`

	selectOne = `SELECT ` + grantColumns + fromGrants + ` AND id = ? AND revoked_at = ''`

	// now, namespace, namespace; '' selects all namespaces
	selectGrants = `SELECT ` + grantColumns + fromGrants + `
		AND revoked_at = '' AND (expires_at = '' OR expires_at > ?) AND (? = '' OR namespace = ?) ORDER BY granted_at, id`

	// namespace, digest, scope, session, now, made until, the end of the grant that is compared
	selectAlike = `SELECT ` + grantColumns + fromGrants + ` AND namespace = ? AND digest = ? AND scope = ? AND scope <> 'once' AND session_id = ?
		AND revoked_at = '' AND (expires_at = '' OR expires_at > ? AND granted_at <= ? AND expires_at >= ?) ORDER BY granted_at, id`

	// request, MAC of the row with this request, id, MAC of the row without a request, now
	takeGrant = `UPDATE grants SET request_id = ?1, mac = ?2 WHERE id = ?3 AND mac IN (?2, ?4) AND revoked_at = '' AND expires_at > ?5`

	// now, id. It also removes the MAC, so that clearing revoked_at does not put the grant in force again.
	revokeGrant = `UPDATE grants SET revoked_at = ?, mac = '' WHERE id = ?`

	// a time. It deletes grants that ended before it, and grants without a MAC that were made before it: these are of an
	// older release and not in force.
	deleteGrants = `DELETE FROM grants WHERE revoked_at <> '' AND revoked_at <= ?1 OR expires_at <> '' AND expires_at <= ?1 OR mac IS NULL AND granted_at <= ?1`
)
