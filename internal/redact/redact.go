// Package redact keeps secrets out of what is shown. It looks for each value in
// the forms that a program gives it without meaning to hide it, all in one pass
// over a stream of bytes, however that is split, and puts [Mask] in their place.
//
// # What is found
//
// Of every secret: the value itself; in upper and in lower case; backwards; as
// base64 in both alphabets and all three alignments, without the digits at its
// edges that other bytes share, and as base32 by itself; as hex in both cases, also
// with a space or a colon between bytes, and as a list of decimal numbers; as UTF-16;
// percent-encoded, wholly or as the common libraries do it; with the escapes of JSON,
// of Python, of shells and of mail, and wholly in \u or \x escapes; with those of HTML
// and XML, also by numbers; with quotes or percent signs doubled, as in CSV, SQL and INI files. It is found
// across the soft line breaks of quoted-printable text, and in what xxd, hexdump and
// od -t x1 print with their offsets, whose lines are masked whole.
// Of a value of several lines, its longer lines as well. What is encrypted, compressed, encoded
// twice or changed in another way is not found.
//
// Everything that a form covers is masked. Forms that overlap or touch are masked
// as one, so nothing of either is left. A secret of more than 64 bytes is found by
// fingerprints, which are 32 bytes of it: from the first one on everything is
// masked that goes on as the secret does.
//
// # Streams
//
// Bytes that may be the beginning of a form are held back until it is certain
// that they are not, or the stream ends. What comes out does not depend on how
// the bytes came in.
//
// A Masker does not change and may be used concurrently; a Stream may not.
package redact

import (
	"slices"
	"strings"
)

// Mask stands in place of a secret.
const Mask = "***REDACTED***"

// Secret is a value that is to be found, and what it is called.
type Secret struct {
	Name  string
	Value string // shorter than MinBytes: not looked for, because it would be found everywhere
}

// MinBytes is the least that a value has.
const MinBytes = 8

// exactBytes is how long a secret may be whose forms are looked for as a whole.
const exactBytes = 64

// Masker knows what is to be found.
type Masker struct {
	names []string
	auto  *automaton // nil: there are no secrets
	pii   bool
}

// New makes a Masker for secrets, and for e-mail addresses, phone numbers, cards
// and social security numbers if pii is true. It returns nil when there is nothing
// to be found; a nil Masker changes nothing.
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

// Bytes is what the Masker takes of memory, about.
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

// Find returns the name of a secret that stands in data in any form, or "" when
// none does.
func (m *Masker) Find(data []byte) string {
	if m == nil || m.auto == nil {
		return ""
	}
	if i := m.auto.find(data); i >= 0 {
		return m.names[i]
	}
	return ""
}

// Stream begins a stream. That of a nil Masker is nil.
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

// Stream masks bytes as they come.
type Stream struct {
	masker  *Masker
	dumps   *dumps     // nil: there are no secrets
	secrets *stream    // likewise
	pii     *piiStream // nil: not asked for
	before  []byte     // from dumps to secrets
	between []byte     // from secrets to pii
}

// Write takes bytes, and appends to dst what can be shown by now.
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

// Close ends the stream, and appends the rest.
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

// Partial names the secrets of which a half or more, and 8 bytes, went through
// unmasked in some form: one that was cut off, or whose rest is elsewhere. It is
// whole once the stream has been closed.
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

// Masks tells whether a mask would show the value: such a one cannot be hidden.
func Masks(value string) bool {
	return strings.Contains(strings.ToUpper(Mask), strings.ToUpper(value))
}
