// Package redact masks secrets in output. It searches a stream of bytes for each secret
// in all its forms, in one pass, and replaces them by [Mask]. A form is an encoding that
// programs commonly apply to a value, such as base64 or JSON escapes. The result does not
// depend on how the stream is split into writes.
//
// # What is found
//
//   - the value itself, in upper case, in lower case, and reversed
//   - base64 in both alphabets and at all three alignments, except the digits at its
//     ends that also encode neighboring bytes; base32, if the value is encoded alone
//   - hex in both cases, also with a space or a colon between bytes; lists of
//     hexadecimal and decimal numbers; UTF-16
//   - percent-encoding, of all bytes or as common libraries do it
//   - escapes of JSON, Python, shells, mail, HTML and XML; \u and \x escapes and numeric
//     references for all characters; doubled quotes and percent signs, as in CSV, SQL and
//     INI files
//   - a value that is split by soft line breaks of quoted-printable text
//   - dumps of xxd, hexdump and od -t x1 with offsets, whose lines are masked whole
//   - of a value of several lines, each of its longer lines
//
// A value that is encrypted, compressed, encoded twice, or changed in another way is not
// found.
//
// Every byte of a form is masked. Forms that overlap or touch get one mask. The forms of a
// secret of more than 64 bytes are found by fingerprints of 32 bytes: from the first
// fingerprint on, all bytes are masked that continue the form.
//
// # Streams
//
// Bytes that may be the beginning of a form are held back until it is certain that they
// are not, or until the stream ends.
//
// A Masker is immutable and may be used concurrently. A Stream may not.
package redact

import (
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Mask replaces a secret.
const Mask = "***REDACTED***"

// Secret is a value to mask, and its name.
type Secret struct {
	Name  string
	Value string // not masked if shorter than MinBytes, because it would match too often
}

// MinBytes is the length of the shortest value that is masked.
const MinBytes = 8

// exactBytes is the length of the longest secret whose forms are searched for as a whole.
const exactBytes = 64

// Masker masks a set of secrets.
type Masker struct {
	names []string
	auto  *automaton // nil: no secrets
	pii   bool
}

// New makes a Masker for secrets. With pii it also masks e-mail addresses, phone numbers,
// card numbers and social security numbers. It returns nil if there is nothing to mask; a
// nil Masker changes nothing.
func New(secrets []Secret, pii bool) *Masker {
	m := &Masker{pii: pii}
	room := 0
	for _, s := range secrets {
		room += min(len(s.Value), exactBytes) * usualGrowth
	}
	b := newBuilder(min(room, maxNodes))
	for _, s := range secrets {
		if len(s.Value) < MinBytes {
			continue
		}
		owner := slices.Index(m.names, s.Name)
		if owner < 0 {
			owner = len(m.names)
			m.names = append(m.names, s.Name)
		}
		b.add(owner, s.Value)
	}
	m.auto = b.build()
	if m.auto == nil && !pii {
		return nil
	}
	return m
}

// Bytes returns roughly how much memory the Masker uses.
func (m *Masker) Bytes() int {
	if m == nil || m.auto == nil {
		return 0
	}
	return m.auto.bytes()
}

// Text masks a whole text.
func (m *Masker) Text(s string) string {
	if m == nil || s == "" {
		return s
	}
	if m.auto != nil && m.auto.find([]byte(s)) >= 0 {
		st := m.Stream()
		st.pii = nil
		s = string(st.Close(st.Write(nil, []byte(s))))
	}
	if m.pii {
		s = maskPII(s)
	}
	return s
}

// Find returns the name of a secret that data contains in any form, or "".
func (m *Masker) Find(data []byte) string {
	if m == nil || m.auto == nil {
		return ""
	}
	if i := m.auto.find(data); i >= 0 {
		return m.names[i]
	}
	return ""
}

// Stream starts a stream. It returns nil for a nil Masker.
func (m *Masker) Stream() *Stream {
	if m == nil {
		return nil
	}
	s := &Stream{masker: m}
	if m.auto != nil {
		s.dumps, s.secrets = m.auto.dumps(), m.auto.stream()
	}
	if m.pii {
		s.pii = &piiStream{}
	}
	return s
}

// Stream masks bytes as they arrive. They pass through dumps, secrets and pii in this order.
type Stream struct {
	masker  *Masker
	dumps   *dumps     // nil: no secrets
	secrets *stream    // nil: no secrets
	pii     *piiStream // nil: personal data is not masked
	before  []byte     // buffer between dumps and secrets
	between []byte     // buffer between secrets and pii
}

// Write takes the next bytes and appends to dst all masked output that can no longer
// change.
func (s *Stream) Write(dst, p []byte) []byte {
	if s.secrets == nil {
		return s.pii.write(dst, p)
	}
	p, soft := s.dumps.through(&s.before, p)
	if s.pii == nil {
		return s.secrets.write(dst, p, soft)
	}
	s.between = s.secrets.write(s.between[:0], p, soft)
	return s.pii.write(dst, s.between)
}

// Close ends the stream and appends the rest of the output to dst.
func (s *Stream) Close(dst []byte) []byte {
	if s.secrets == nil {
		return s.pii.close(dst)
	}
	s.before = s.dumps.close(s.before[:0])
	if s.pii == nil {
		return s.secrets.close(s.secrets.write(dst, s.before, true))
	}
	s.between = s.secrets.write(s.between[:0], s.before, true)
	s.between = s.secrets.close(s.between)
	return s.pii.close(s.pii.write(dst, s.between))
}

// Partial names the secrets of which at least half of a form, and at least 8 bytes, were
// written unmasked: the form was cut off, or its rest is in another stream. The list is
// complete after Close.
func (s *Stream) Partial() []string {
	if s == nil || s.secrets == nil {
		return nil
	}
	var names []string
	for i := range s.secrets.partial {
		names = append(names, s.masker.names[i])
	}
	slices.Sort(names)
	return names
}

// Partial returns the names that [Stream.Partial] returns for a whole text.
func (m *Masker) Partial(data []byte) []string {
	if m == nil || m.auto == nil {
		return nil
	}
	const piece = 64 << 10
	s, out := m.Stream(), []byte(nil)
	s.pii = nil
	for len(data) > 0 {
		n := min(len(data), piece)
		out, data = s.Write(out[:0], data[:n]), data[n:]
	}
	s.Close(out[:0])
	return s.Partial()
}

// Masks reports whether the value is a part of Mask itself and so cannot be masked.
func Masks(value string) bool {
	return strings.Contains(strings.ToUpper(Mask), strings.ToUpper(value))
}

// Plain refuses a name that contains a secret, because it is shown unmasked. what is the
// kind of name, for the error, which has the code invalid_argument.
func (m *Masker) Plain(what, name string) error {
	if key := m.Find([]byte(name)); key != "" {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds the secret %s", what, key).WithHint("choose a name without it")
	}
	return nil
}
