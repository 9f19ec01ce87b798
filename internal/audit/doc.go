// Package audit is the append-only record of what was about to be done and what came of
// it. Hash chains and signed checkpoints make a later change of the record visible.
//
// Entries are numbered 1, 2, 3 … in each namespace. The transaction that inserts an entry
// gives it its number and hash. So any number of processes that share a state directory
// make one chain per namespace, without gaps.
//
// # The chain
//
// Each entry holds prev, the hash of the entry before it in its namespace (64 zeros for
// entry 1), and hash, the SHA-256 in hex of its canonical form, which contains prev and not
// hash. After a change, removal or move of an entry, the hashes of all later entries would
// have to be computed anew. A chain that was computed anew as a whole, or cut off at its
// end, does not fit the checkpoints.
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
//
// The tree is that of RFC 6962 (golang.org/x/mod/sumdb/tlog); a leaf is the 32 bytes of an
// entry's hash. At most 100 entries, or those of the last second, are under no checkpoint.
// Table audit_checkpoints has the notes, each with its edge: the roots of the perfect
// subtrees, from which the next tree is built. The newest note is also in a file beside the
// key. If a second place is configured, all notes are appended to it.
//
// Entries that were dropped for their age leave a note of the same form. It begins with
// "sandboxmcp audit dropped v1" and has one more line: "ends" and the SHA-256 of the ends
// of their chains. That is taken over one line for each namespace, in the order of their
// names, with the namespace, the last seq and the last hash.
//
// # The canonical form, version 1
//
// One JSON object in UTF-8 without white space between tokens, with exactly
// these members in this order, which is that of their names:
//
//	action actor detail duration_ms exit_code id language metadata namespace
//	phase prev request_id resource_usage seq session_id success timestamp
//
// Strings: as RFC 8785 writes them. Only " and \ and the characters below
// U+0020 are escaped, as \b \t \n \f \r or \u00xx with small hex digits.
// Invalid UTF-8 is replaced by U+FFFD before anything is hashed or kept.
//
// Numbers: seq, exit_code and every whole number literal that fits 64 bits,
// signed or not, in decimal digits; all others as RFC 8785 writes a double
// (ECMAScript's Number to String: 12.5, 1e+21, 1e-7). Whole numbers are not
// rounded to doubles; that is the one difference from RFC 8785.
//
// timestamp: a string, RFC 3339 in UTC with nine digits after the point:
// "2006-01-02T15:04:05.000000000Z".
//
// metadata: an object, which may be empty; resource_usage: an object or null. Their
// members are in the order of their names by UTF-16 code units. exit_code, duration_ms and
// success: null where they do not apply. All others are strings, empty where they do not
// apply.
//
// The columns of table audit hold the same values under the same names:
// metadata and resource_usage as the text of their canonical form, success as 0
// or 1, timestamp as text.
package audit
