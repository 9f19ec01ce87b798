// Package audit is the append-only record of intended actions and their results. Hash
// chains and signed checkpoints reveal later changes of the record.
//
// Entries are numbered 1, 2, 3 … in each namespace. The transaction that inserts an entry
// gives it its number and hash. So any number of processes that share a state directory
// make one chain per namespace, without gaps.
//
// # The chain
//
// Each entry has two hashes: prev, that of the entry before it in its namespace (64 zeros
// for entry 1), and hash, the SHA-256 in hex of its own canonical form. The canonical form
// contains prev but not hash. After a change, removal or move of an entry, the hashes of
// all later entries would have to be computed again. A chain that was recomputed as a
// whole, or cut off at its end, does not match the checkpoints.
//
// # Checkpoints
//
// The entries of all namespaces have positions 1, 2, 3 … in the order of their commits. A
// checkpoint is a signed note (golang.org/x/mod/sumdb/note) with the text
//
//	sandboxmcp audit checkpoint v1
//	<number of entries, from the first on>
//	<root of the Merkle tree over them, base64>
//	time <when it was signed, as below>
//	macs from <the first position whose entry must have a MAC>
//
// Checkpoints of releases without MACs do not have the last line.
//
// The tree is that of RFC 6962 (golang.org/x/mod/sumdb/tlog); a leaf is the 32 bytes of an
// entry's hash. At most 100 entries, or those of the last second, have no checkpoint yet.
// After a server was killed, these are up to 512 more: its notes, which another process brought in.
// Table audit_checkpoints stores each note with its edge: the roots of the perfect
// subtrees, from which the next tree is built. The newest note is also in a file beside the
// key. If a checkpoint file is configured, all notes are also appended to it.
//
// # MACs
//
// Each entry has a MAC: the first 16 bytes, in hex, of the HMAC-SHA256 over its position (8 bytes, the most
// significant first) and the 32 bytes of its hash. The key is derived from the signing key by HKDF-SHA256
// with the info "sandboxmcp audit entries 1". All servers of a record have the same signing key. So each of
// them can check the entries of all, and only they can append. Before a checkpoint is signed, the MACs of
// its new entries are checked. An entry with a wrong MAC, or without one, is not signed, and nothing after it.
//
// Entries of a release without MACs precede the position of "macs from". That line is signed with
// each checkpoint and taken over by the next one. It cannot be moved or removed without the key. The first
// checkpoint with the line accepts entries without a MAC, up to the first entry that has one.
//
// A note of [Log.Note] has a MAC of its own, with the info "sandboxmcp audit notes 1". The process that
// brings the note into the database checks it.
//
// # Dropped entries
//
// When entries are dropped because of their age, a note of the same form replaces them. It
// begins with "sandboxmcp audit dropped v1" and has one more line: "ends" and the SHA-256
// of the ends of their chains. The hashed text has one line per namespace, sorted by name,
// with the namespace, the last seq and the last hash.
//
// # The canonical form, version 1
//
// One JSON object in UTF-8 without white space between tokens, with exactly these members,
// sorted by name:
//
//	action actor detail duration_ms exit_code id language metadata namespace
//	phase prev request_id resource_usage seq session_id success timestamp
//
// Strings: as RFC 8785 writes them. Only " and \ and the characters below U+0020 are
// escaped, as \b \t \n \f \r or \u00xx with lower-case hex digits. Invalid UTF-8 is
// replaced by U+FFFD before anything is hashed or stored.
//
// Numbers: seq, exit_code and every whole number literal that fits into 64 bits, signed or
// unsigned, in decimal digits. All others as RFC 8785 writes a double (ECMAScript's Number
// to String: 12.5, 1e+21, 1e-7). Unlike in RFC 8785, whole numbers are not rounded to
// doubles.
//
// timestamp: a string, RFC 3339 in UTC with nine digits after the point:
// "2006-01-02T15:04:05.000000000Z".
//
// metadata is an object, which may be empty. resource_usage is an object or null. Their
// members are sorted by name, by UTF-16 code units. exit_code, duration_ms and success are
// null where they do not apply. All other members are strings, and empty where they do not
// apply.
//
// The columns of table audit hold the same values under the same names: metadata and
// resource_usage as the text of their canonical form, success as 0 or 1, timestamp as text.
package audit
