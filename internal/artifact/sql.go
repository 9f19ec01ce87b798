package artifact

// The statements of this package. Its tables are executions, artifacts and kept_bytes.
// Triggers on executions maintain kept_bytes. A comment above a statement names its
// parameters in their order.

const (
	insertExecution = `INSERT INTO executions (request_id, namespace, session_id, language, status, exit_code, created_at, ended_at, result, stdout, stderr, stdout_blob, stderr_blob, receipt, bytes)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	orNothing = ` ON CONFLICT (request_id) DO NOTHING`

	// request, namespace
	selectExecution = `SELECT result, stdout, stderr, stdout_blob, stderr_blob, receipt FROM executions WHERE request_id = ? AND namespace = ?`
	selectStdout    = `SELECT stdout, stdout_blob, receipt FROM executions WHERE request_id = ? AND namespace = ?`
	selectStderr    = `SELECT stderr, stderr_blob, receipt FROM executions WHERE request_id = ? AND namespace = ?`
	selectStored    = `SELECT EXISTS (SELECT 1 FROM executions WHERE request_id = ? AND namespace = ?)`
	selectSession   = `SELECT session_id, receipt FROM executions WHERE request_id = ? AND namespace = ?`

	// each namespace from its newest request to the oldest
	selectByAge = `SELECT namespace, request_id, created_at, coalesce(bytes, 0) FROM executions ORDER BY namespace, created_at DESC, request_id`

	// namespace, the request to keep, how many
	selectOldest = `SELECT request_id, coalesce(bytes, 0) FROM executions WHERE namespace = ? AND request_id <> ? ORDER BY created_at LIMIT ?`

	deleteExecution = `DELETE FROM executions WHERE request_id = ?`

	selectKeptBytes = `SELECT bytes FROM kept_bytes WHERE namespace = ?`

	// bytes that each row counts in addition to its texts
	selectUnmeasured = `SELECT request_id, length(result) + coalesce(length(receipt), 0) + coalesce(length(stdout), 0) + coalesce(length(stderr), 0)
			+ (SELECT coalesce(sum(size_bytes + length(name) + length(path) + ?1), 0) FROM artifacts a WHERE a.request_id = e.request_id) + ?1, stdout_blob, stderr_blob
		FROM executions e WHERE bytes IS NULL`

	// bytes, request
	setBytes = `UPDATE executions SET bytes = ? WHERE request_id = ? AND bytes IS NULL`
)

const (
	insertArtifact = `INSERT INTO artifacts (request_id, name, path, mime_type, size_bytes, sha256, signature, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

	// request, name, name; an empty name selects all artifacts
	selectArtifacts = `SELECT name, path, mime_type, size_bytes, sha256, signature, created_at FROM artifacts WHERE request_id = ? AND (? = '' OR name = ?) ORDER BY name`

	// namespace, session, name
	selectNewestOf = `SELECT e.request_id FROM executions e JOIN artifacts a USING (request_id)
		WHERE e.namespace = ? AND e.session_id = ? AND a.name = ? ORDER BY e.ended_at DESC LIMIT 1`

	deleteArtifacts = `DELETE FROM artifacts WHERE request_id = ?`
)

// Rows refer to blobs by their SHA-256, in three columns.
const (
	// from, to
	selectNamed = `SELECT sha256 FROM artifacts WHERE sha256 BETWEEN ?1 AND ?2
		UNION SELECT stdout_blob FROM executions WHERE stdout_blob BETWEEN ?1 AND ?2
		UNION SELECT stderr_blob FROM executions WHERE stderr_blob BETWEEN ?1 AND ?2`

	// request
	selectNamedBy = `SELECT sha256 FROM artifacts WHERE request_id = ?1
		UNION SELECT stdout_blob FROM executions WHERE request_id = ?1 AND stdout_blob IS NOT NULL
		UNION SELECT stderr_blob FROM executions WHERE request_id = ?1 AND stderr_blob IS NOT NULL`

	// blob
	isNamed = `SELECT EXISTS (SELECT 1 FROM artifacts WHERE sha256 = ?1)
		OR EXISTS (SELECT 1 FROM executions WHERE stdout_blob = ?1) OR EXISTS (SELECT 1 FROM executions WHERE stderr_blob = ?1)`
)
