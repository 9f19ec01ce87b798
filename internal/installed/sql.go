package installed

// The statements of this package. Its table is packages.
const (
	size = `octet_length(namespace) + octet_length(language) + octet_length(digest) + octet_length(added_at) + octet_length(requested) +
		octet_length(coalesce(id, '')) + octet_length(coalesce(mac, ''))`

	// A server makes no row of more than 1 MiB. Such a row is not read, so that it does not hide the others.
	selectRows = `SELECT namespace, language, digest, added_at, requested, coalesce(id, ''), mac FROM packages WHERE ` + size + ` <= 1048576`
	countLarge = `SELECT count(*) FROM packages WHERE ` + size + ` > 1048576`

	selectAll = selectRows + ` ORDER BY namespace, added_at DESC, digest`

	setOne = `INSERT INTO packages (namespace, language, digest, added_at, requested, id, mac) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, language, digest) DO UPDATE SET added_at = excluded.added_at, requested = excluded.requested, id = excluded.id, mac = excluded.mac`

	// A trigger refuses to delete a row that has a MAC, because servers of a release without MACs do that.
	endOne    = `UPDATE packages SET mac = '' WHERE namespace = ? AND language = ? AND digest = ?`
	deleteOne = `DELETE FROM packages WHERE namespace = ? AND language = ? AND digest = ?`
)
